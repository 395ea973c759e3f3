"""What a child of a fork has to do about what its parent had open: nothing, and that for ever."""

import ctypes
import os
from typing import Protocol
from weakref import WeakSet


class Inheritor(Protocol):
    """Holds what belongs to one process."""

    def forked(self) -> None:
        """This is a child: start from nothing, and ``abandon`` what is the parent's."""

    def __hash__(self) -> int: ...


_inheritors: "WeakSet[Inheritor]" = WeakSet()


def tell(inheritor: Inheritor) -> None:
    """Call its ``forked`` in every child from now on."""
    _inheritors.add(inheritor)


def abandon(thing: object) -> None:
    """Never free it, not even when the interpreter ends.

    The sockets and the epoll descriptor of a parent are shared with its child. A connection that is freed in the child
    takes itself out of that epoll, and the parent would never again hear from its server.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(thing))


def _in_child() -> None:
    for inheritor in list(_inheritors):
        inheritor.forked()


os.register_at_fork(after_in_child=_in_child)
