"""What a page was asked for, in its address or in a form: filters that live in the URL, and changes to be made."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Protocol
from urllib.parse import urlencode
from uuid import UUID

import msgspec

from dibs.errors import Refused
from dibs.http.dashboard.words import moment_of
from dibs.http.service.data import BatchGiven, JobFilter, Verb

LISTS = ("id", "queue", "task", "state", "worker", "key", "flow")
TEXTS = ("text", "group")
TIMES = ("created_since", "created_before", "finished_since", "finished_before")
MOMENTS = {"since": "created_since", "before": "created_before", **{name: name for name in TIMES}}
FIELDS = (*LISTS, *TEXTS, *MOMENTS)
BESIDES = ("after", "told")
"""Words of an address that choose no jobs."""


class Multi(Protocol):
    """A query or a form: names that may come several times."""

    def getlist(self, key: Any) -> list[Any]: ...


def only_known(query: Iterable[str]) -> None:
    """Refuse an address with a word that is none of ours: who mistypes a filter would see, and change, every job."""
    for name in query:
        if name not in FIELDS and name not in BESIDES:
            raise Refused(f"no filter is called {name[:40]!a}: there are {', '.join(FIELDS)}")


def asked(form: Multi) -> dict[str, list[str]]:
    """What was given of the words of a filter, empty ones left out."""
    given = {name: [str(value).strip() for value in form.getlist(name)] for name in FIELDS}
    return {name: kept for name, values in given.items() if (kept := [value for value in values if value])}


def job_filter(given: Mapping[str, Sequence[str]], now: datetime) -> JobFilter:
    """Which jobs that means; Refused says what of it makes no sense."""
    fields: dict[str, Any] = {name: given[name] for name in LISTS if name in given}
    fields |= {name: given[name][-1] for name in TEXTS if name in given}
    fields |= {field: moment_of(given[name][-1], now, past=True) for name, field in MOMENTS.items() if name in given}
    try:
        return msgspec.convert(fields, JobFilter, strict=False)
    except msgspec.ValidationError as problem:
        raise Refused(f"this filter makes no sense: {problem}") from None


def query(given: Mapping[str, Sequence[str]], **more: object) -> str:
    """The address of the same page with these words; those that are None are left out."""
    words = {**given, **{name: [str(value)] for name, value in more.items() if value is not None}}
    kept = {name: values for name, values in words.items() if name not in more or more[name] is not None}
    text = urlencode(kept, doseq=True)
    return f"?{text}" if text else ""


def after(form: Mapping[str, Any]) -> UUID | None:
    """Where to go on."""
    text = form.get("after")
    try:
        return UUID(str(text)) if text else None
    except ValueError:
        raise Refused(f"{str(text)[:40]!a} is no place to go on from") from None


def batch(form: Any, which: JobFilter, now: datetime, *, dry_run: bool) -> BatchGiven:
    """The change that a form asks for."""
    given: dict[str, Any] = {"verb": form.get("verb"), "dry_run": dry_run, "force": form.get("force") == "yes"}
    if form.get("everything") == "yes":
        given["everything"] = True
    if not dry_run:
        if form.get("run_at"):
            given["run_at"] = moment_of(str(form["run_at"]), now, past=False)
        if form.get("priority"):
            given["priority"] = str(form["priority"])
        if form.get("confirm"):
            given["confirm"] = str(form["confirm"])
        if form.get("reason"):
            given["reason"] = str(form["reason"]).strip()
    elif given["verb"] == Verb.RESCHEDULE:
        given["run_at"] = now  # only to count: when is asked on the next page
    elif given["verb"] == Verb.REPRIORITISE:
        given["priority"] = 0
    try:
        made = msgspec.convert(given, BatchGiven, strict=False)
    except msgspec.ValidationError as problem:
        raise Refused(f"this change makes no sense: {problem}") from None
    return msgspec.structs.replace(made, which=which)
