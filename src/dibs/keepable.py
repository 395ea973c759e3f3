"""What may be kept that is no job. Every store asks here first, as it asks :mod:`dibs.limits` about jobs."""

from collections.abc import Mapping
from typing import Any

from dibs import limits
from dibs.errors import Refused
from dibs.limits import DEFAULT, Limits


def keepable(
    kind: str, values: Mapping[str, Mapping[str, Any] | None], rank: int, within: Limits = DEFAULT
) -> dict[str, str | None]:
    """Check what is to be kept; answers it as JSON text by name, in the order of the names."""
    limits.name(kind, "kind")
    limits.rank(rank)
    limits.bulk(len(values), "values")
    return {limits.name(each, "name"): _value(values[each], within) for each in sorted(values, key=str)}


def _value(value: Any, within: Limits) -> str | None:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        raise Refused(f"what is kept must be a dict, not {type(value).__name__}")
    return limits.to_json(dict(value), "values", within)
