"""What is kept that is no job."""

from collections.abc import Iterable, Mapping

import msgspec

from dibs.clock import from_micros
from dibs.job import Kept
from dibs.stores.sqlite import statements as sql
from dibs.stores.sqlite.connect import Connection


def keep(db: Connection, kind: str, texts: Mapping[str, str | None], rank: int) -> None:
    for name, text in texts.items():
        if text is None:
            db.run(sql.KEEP_NO_MORE, (kind, name))
        else:
            db.run(sql.KEEP, (kind, name, rank, text))


def kept(db: Connection, kinds: Iterable[str], now: int) -> Kept:
    values = {kind: {name: msgspec.json.decode(text) for name, text in db.rows(sql.KEPT, (kind,))} for kind in kinds}
    return Kept(from_micros(now), values)
