"""Jobs in Redis or Valkey: one Lua script per verb, every key in one slot."""

from dibs.stores.redis.store import RedisStore

__all__ = ["RedisStore"]
