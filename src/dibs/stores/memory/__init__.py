"""Jobs in this process's memory: the model that the other stores are compared with."""

from dibs.stores.memory.store import MemoryStore

__all__ = ["MemoryStore"]
