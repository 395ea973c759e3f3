"""Everything dibs raises on purpose. Each message is one line and says what to do."""


class DibsError(Exception):
    """The root of all errors that dibs raises."""


class Refused(DibsError, ValueError):
    """The input breaks a rule of :mod:`dibs.limits`. Nothing was stored."""


class ConfigurationError(DibsError):
    """A URL, an option, a missing extra or a server setting that dibs cannot work with."""


class SchemaError(DibsError):
    """The store's schema is missing, too old or too new for this version of dibs."""


class StoreUnavailable(DibsError):
    """The store cannot be reached, or it went away during the call.

    Whether the call took effect is unknown: an enqueue can be sent again with the same ids, a settle can be
    sent again as it is, and a claim that got lost comes back when its lease expires.
    """
