"""Jobs in PostgreSQL, schema ``dibs``. The verbs are SQL functions that any language can call; so does this store."""

from dibs.stores.postgres.store import PostgresStore

__all__ = ["PostgresStore"]
