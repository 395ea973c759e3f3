"""How a call in another process can go wrong, as its worker sees it."""

import signal

MAIN_IN_CHILD = "__dibs_main__"
"""What a child calls the script that its worker runs as ``__main__``: what that guards by its name is not run."""


class HandlerError(Exception):
    """A handler raised in a child process. The exception itself stays there; this is what it said.

    ``type`` is the qualified name of its class, ``mro`` those of all classes that it is an instance of, and
    ``traceback`` the text as Python prints it.
    """

    def __init__(self, type: str, message: str, traceback: str = "", mro: tuple[str, ...] = ()) -> None:
        super().__init__(type, message)
        self.type = type
        self.message = message
        self.traceback = traceback
        self.mro = mro or (type,)

    def __str__(self) -> str:
        kind = self.type.rpartition(".")[2]
        return f"{kind}: {self.message}" if self.message else kind


class ProcessDied(Exception):
    """The child process ended in the middle of the call: a crash, ``os._exit``, a kill, no memory left.

    ``signal`` or ``code`` says how; the other one is None.
    """

    def __init__(self, status: int) -> None:
        super().__init__(status)
        self.signal = -status if status < 0 else None
        self.code = status if status >= 0 else None

    def __str__(self) -> str:
        if self.signal is None:
            return f"the process that ran the handler exited with code {self.code}"
        try:
            name = signal.Signals(self.signal).name
        except ValueError:  # a real-time signal has no name
            name = f"signal {self.signal}"
        hint = "; a kill that nobody sent is often a lack of memory" if name == "SIGKILL" else ""
        return f"the process that ran the handler was ended by {name}{hint}"


def caused_by(error: BaseException, kinds: tuple[type[BaseException], ...]) -> bool:
    """Whether the error is one of ``kinds``, wherever it was raised: ``retry_on`` and ``fail_on`` ask here."""
    if isinstance(error, kinds):
        return True
    return isinstance(error, HandlerError) and not {qualified(kind) for kind in kinds}.isdisjoint(error.mro)


def qualified(kind: type) -> str:
    """The name by which a class is known in the worker and in its children."""
    module = "__main__" if kind.__module__ == MAIN_IN_CHILD else kind.__module__
    return f"{module}.{kind.__qualname__}"
