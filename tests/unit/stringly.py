"""Functions whose annotations are strings, as `from __future__ import annotations` makes them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import timedelta
    from decimal import Decimal as Elsewhere
else:
    from decimal import Decimal as Elsewhere


@dataclass
class Parcel:
    weight: Elsewhere


def ship(parcel: Parcel, to: str | None = None) -> bool:
    return bool(parcel.weight and to)


def lost(after: timedelta) -> None: ...
