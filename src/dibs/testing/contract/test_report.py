"""Reports: what a handler says about its job comes with a heartbeat, is fenced like it, and stays with the job."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID

import pytest

from dibs.errors import Refused
from dibs.ids import new_id
from dibs.job import SILENT, Claim, Filter, Job, LogLine, Report
from dibs.outcome import Outcome, Pulse, Retry, Succeeded
from dibs.store import Store
from dibs.testing.contract.helpers import (
    LEASE,
    OUTCOMES,
    SECOND,
    add,
    add_one,
    beat,
    changed,
    end,
    finish,
    look,
    named,
    only,
    picture,
    take,
    take_one,
)
from dibs.testing.labs.base import Lab

pytestmark = pytest.mark.asyncio

AT = datetime(2026, 1, 2, 3, 4, 5, 678901, UTC)
HALF = Report(0.5, "half of the rows", (LogLine(AT, 1, "opened"), LogLine(AT + SECOND, 1, "read\n\t5 “rows”, 😀")))
NEXT = Report(0.75, "", (LogLine(AT + 2 * SECOND, 2, "closing"),))


async def tell(store: Store, claim: Claim, report: Report) -> Pulse:
    """A heartbeat for one claim, by its worker, that carries a report."""
    [pulse] = await store.heartbeat(claim.worker, [claim], LEASE, reports={claim.id: report})
    return pulse


async def shown(store: Store, job: UUID) -> Report:
    """The report of the job, which must be the same in ``get`` and in ``find``."""
    found = await look(store, job)
    [listed] = (await store.find(only(job))).jobs
    assert listed == found
    return found.report


async def reported(store: Store, report: Report = HALF) -> Claim:
    """The claim of a new job whose handler said that."""
    await add_one(store)
    claim = await take_one(store)
    assert await tell(store, claim, report) is Pulse.HELD
    return claim


# --- what is kept -----------------------------------------------------------------------------


async def test_a_job_has_an_empty_report_until_its_handler_says_something(store: Store) -> None:
    job = await add_one(store)
    assert await shown(store, job) == SILENT
    claim = await take_one(store)
    await beat(store, claim)
    assert await shown(store, job) == SILENT
    await end(store, claim, Succeeded())
    assert await shown(store, job) == SILENT


async def test_a_report_is_kept_to_the_letter_and_the_microsecond(store: Store) -> None:
    claim = await reported(store)
    assert await shown(store, claim.id) == HALF


async def test_a_heartbeat_with_a_report_renews_the_lease_and_changes_nothing_else(store: Store, lab: Lab) -> None:
    job = await add_one(store)
    claim = await take_one(store)
    before = await look(store, job)
    await lab.advance(10)
    assert await tell(store, claim, HALF) is Pulse.HELD
    after = await look(store, job)
    assert after.locked_until == lab.now + LEASE
    assert _besides(after, "report", "locked_until") == _besides(before, "report", "locked_until")


def _besides(job: Job, *fields: str) -> dict[str, Any]:
    return {name: getattr(job, name) for name in job.__struct_fields__ if name not in fields}


async def test_a_report_replaces_the_one_before(store: Store) -> None:
    claim = await reported(store)
    await tell(store, claim, NEXT)
    assert await shown(store, claim.id) == NEXT
    await tell(store, claim, SILENT)
    assert await shown(store, claim.id) == SILENT


async def test_a_heartbeat_without_a_report_keeps_the_last_one(store: Store) -> None:
    claim = await reported(store)
    assert await beat(store, claim) is Pulse.HELD
    assert await store.heartbeat("ann", [claim], LEASE, None, {}) == [Pulse.HELD]
    assert await shown(store, claim.id) == HALF


async def test_a_report_is_kept_when_the_lease_needs_no_renewing(store: Store) -> None:
    job = await add_one(store)
    claim = await take_one(store, lease=timedelta(hours=1))
    assert await tell(store, claim, HALF) is Pulse.HELD
    found = await look(store, job)
    assert (found.report, found.locked_until) == (HALF, claim.locked_until)


async def test_a_job_that_is_asked_to_cancel_can_still_report(store: Store) -> None:
    job = await add_one(store)
    claim = await take_one(store)
    await store.cancel(only(job))
    assert await tell(store, claim, HALF) is Pulse.CANCEL
    assert await shown(store, job) == HALF


async def test_each_report_goes_to_its_own_job(store: Store) -> None:
    jobs = await add(store, 4)
    claims = await take(store)
    reports = {jobs[3]: NEXT, jobs[1]: HALF}
    assert await store.heartbeat("ann", claims, LEASE, reports=reports) == [Pulse.HELD] * 4
    assert [await shown(store, job) for job in jobs] == [SILENT, HALF, SILENT, NEXT]


async def test_fifteen_hundred_claims_can_report_in_one_call(store: Store) -> None:
    jobs = await add(store, 1_500)
    claims = await take(store, 1_500)
    reports = {job: Report(n / 1_500, str(n)) for n, job in enumerate(jobs)}
    assert await store.heartbeat("ann", claims, LEASE, reports=reports) == [Pulse.HELD] * 1_500
    page = await store.find(Filter(), limit=10_000)
    assert {job.id: job.report for job in page.jobs} == reports


# --- the fence --------------------------------------------------------------------------------


async def test_a_report_with_another_epoch_changes_nothing(store: Store, lab: Lab) -> None:
    claim = await reported(store)
    await end(store, claim, Retry("boom"))
    again = await take_one(store)
    before = await picture(store)
    assert await tell(store, claim, NEXT) is Pulse.LOST
    assert await picture(store) == before
    assert await tell(store, again, NEXT) is Pulse.HELD


async def test_a_report_by_another_worker_changes_nothing(store: Store) -> None:
    claim = await reported(store)
    before = await look(store, claim.id)
    pulses = await store.heartbeat("bob", [claim], LEASE, reports={claim.id: NEXT})
    assert pulses == [Pulse.LOST]
    assert await look(store, claim.id) == before


async def test_a_report_that_comes_after_the_lease_changes_nothing(store: Store, lab: Lab) -> None:
    claim = await reported(store)
    await lab.advance(LEASE.total_seconds())
    before = await look(store, claim.id)
    assert await tell(store, claim, NEXT) is Pulse.LOST
    assert await look(store, claim.id) == before


@pytest.mark.parametrize("outcome", OUTCOMES, ids=named)
async def test_a_report_on_a_settled_claim_changes_nothing(store: Store, outcome: Outcome) -> None:
    claim = await reported(store)
    await end(store, claim, outcome)
    before = await look(store, claim.id)
    assert await tell(store, claim, NEXT) is Pulse.LOST
    assert await look(store, claim.id) == before


async def test_a_report_on_a_deleted_job_brings_nothing_back(store: Store) -> None:
    claim = await reported(store)
    await store.delete(only(claim.id), force=True)
    assert await tell(store, claim, NEXT) is Pulse.LOST
    assert await store.get(claim.id) is None


async def test_a_lost_claim_does_not_keep_the_others_from_reporting(store: Store) -> None:
    jobs = await add(store, 3)
    claims = await take(store)
    await store.cancel(only(jobs[1]), force=True)
    reports = dict.fromkeys(jobs, HALF)
    assert await store.heartbeat("ann", claims, LEASE, reports=reports) == [Pulse.HELD, Pulse.LOST, Pulse.HELD]
    assert [await shown(store, job) for job in jobs] == [HALF, SILENT, HALF]


async def test_reports_of_jobs_that_the_call_holds_no_claim_on_are_ignored(store: Store) -> None:
    jobs = await add(store, 2)
    mine, other = await take(store)
    reports = {other.id: NEXT, new_id(): NEXT, mine.id: HALF}
    assert await store.heartbeat("ann", [mine], LEASE, reports=reports) == [Pulse.HELD]
    assert [await shown(store, job) for job in jobs] == [HALF, SILENT]


# --- how long it lasts ------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", OUTCOMES, ids=named)
async def test_a_report_outlives_the_attempt_however_it_ended(store: Store, outcome: Outcome) -> None:
    claim = await reported(store)
    await end(store, claim, outcome)
    assert await shown(store, claim.id) == HALF


async def test_reports_of_many_successes_settled_at_once_are_kept(store: Store) -> None:
    jobs = await add(store, 3)
    claims = await take(store)
    await store.heartbeat("ann", claims, LEASE, reports={jobs[0]: HALF, jobs[2]: NEXT})
    await store.settle([claim.settled(Succeeded()) for claim in claims])
    assert [await shown(store, job) for job in jobs] == [HALF, SILENT, NEXT]


@pytest.mark.parametrize("most", [1, 2], ids=["no attempts left", "attempts left"])
@pytest.mark.parametrize("asked", [False, True], ids=["", "cancel asked"])
@pytest.mark.parametrize("way", ["claim", "sweep"])
async def test_a_report_outlives_an_expired_lease(store: Store, lab: Lab, most: int, asked: bool, way: str) -> None:
    job = await add_one(store, max_attempts=most)
    await tell(store, await take_one(store), HALF)
    if asked:
        await store.cancel(only(job))
    await lab.advance(60)
    if way == "claim":
        await take(store, worker="bob")
    else:
        assert await store.sweep() == 1
    assert await shown(store, job) == HALF


async def test_a_forced_cancel_keeps_the_report(store: Store) -> None:
    claim = await reported(store)
    await store.cancel(only(claim.id), force=True)
    assert await shown(store, claim.id) == HALF


async def test_a_new_claim_keeps_the_report_until_it_says_something(store: Store) -> None:
    claim = await reported(store)
    await end(store, claim, Retry("boom"))
    again = await take_one(store, worker="bob")
    await beat(store, again)
    assert await shown(store, claim.id) == HALF
    assert await tell(store, again, NEXT) is Pulse.HELD
    assert await shown(store, claim.id) == NEXT


@pytest.mark.parametrize("outcome", [Succeeded(1), OUTCOMES[2], OUTCOMES[3]], ids=named)
async def test_a_requeued_job_keeps_the_lines_and_drops_the_progress(store: Store, outcome: Outcome) -> None:
    claim = await reported(store)
    await end(store, claim, outcome)
    assert await store.requeue(only(claim.id)) == changed(1)
    assert await shown(store, claim.id) == Report(log=HALF.log)
    await finish(store, claim.id)
    assert await store.requeue(only(claim.id)) == changed(1)
    assert await shown(store, claim.id) == Report(log=HALF.log)


async def test_a_requeued_job_that_wrote_no_lines_has_an_empty_report(store: Store) -> None:
    claim = await reported(store, Report(1, "done"))
    await end(store, claim, Succeeded())
    await store.requeue(only(claim.id))
    assert await shown(store, claim.id) == SILENT


async def test_a_job_that_comes_back_under_a_deleted_id_has_an_empty_report(store: Store) -> None:
    claim = await reported(store)
    await end(store, claim, Succeeded())
    await store.delete(only(claim.id))
    await add_one(store, id=claim.id)
    assert await shown(store, claim.id) == SILENT


# --- what may be said -------------------------------------------------------------------------


class Unprintable:
    """What a handler should not hand over, but may."""

    def __str__(self) -> str:
        raise ValueError("no")

    def __float__(self) -> float:
        raise RuntimeError("no")


PROGRESS = [
    (0, 0.0),
    (1, 1.0),
    (1 / 3, 1 / 3),
    (5e-324, 5e-324),
    (-1, 0.0),
    (1.5, 1.0),
    (100, 1.0),
    (float("inf"), 1.0),
    (float("-inf"), 0.0),
    (float("nan"), None),
    (None, None),
    ("0.5", 0.5),
    ("half", None),
    (Unprintable(), None),
]


@pytest.mark.parametrize(("said", "kept"), PROGRESS, ids=lambda value: type(value).__name__)
async def test_progress_is_brought_into_0_to_1(store: Store, said: Any, kept: float | None) -> None:
    claim = await reported(store, Report(said, "note"))
    assert await shown(store, claim.id) == Report(kept, "note")


async def test_texts_that_are_too_long_are_cut(store: Store) -> None:
    line = LogLine(AT, 1, "ü" * 1_000)
    longest = Report(0.5, "😀" * 200, (line,) * 100)
    claim = await reported(store, longest)
    assert await shown(store, claim.id) == longest
    await tell(store, claim, Report(0.5, "😀" * 201, (LogLine(AT, 1, "ü" * 5_000),)))
    assert await shown(store, claim.id) == Report(0.5, "😀" * 199 + "…", (LogLine(AT, 1, "ü" * 999 + "…"),))


async def test_of_too_many_lines_the_last_hundred_are_kept(store: Store) -> None:
    lines = tuple(LogLine(AT + n * SECOND, 1, str(n)) for n in range(250))
    claim = await reported(store, Report(log=lines))
    assert await shown(store, claim.id) == Report(log=lines[-100:])


@pytest.mark.parametrize("text", ["a\0b", "a\ud800b"], ids=ascii)
async def test_what_cannot_be_stored_is_replaced(store: Store, text: str) -> None:
    claim = await reported(store, Report(0.5, text, (LogLine(AT, 1, text),)))
    assert await shown(store, claim.id) == Report(0.5, "a\ufffdb", (LogLine(AT, 1, "a\ufffdb"),))


@pytest.mark.parametrize(
    "text", ["", " ", "\\", '"', "\\u0000", "\x01\x7f", "\u2028", "{}", "[", "'; --", "\ufeff", "\uffff"], ids=ascii
)
async def test_text_that_a_store_might_take_for_its_own_is_kept(store: Store, text: str) -> None:
    report = Report(0.5, text, (LogLine(AT, 1, text),))
    claim = await reported(store, report)
    await end(store, claim, Succeeded())
    assert await shown(store, claim.id) == report
    await store.requeue(only(claim.id))
    assert await shown(store, claim.id) == Report(log=report.log)


async def test_what_is_no_text_is_kept_as_text(store: Store) -> None:
    odd: Any = Unprintable()
    seven: Any = 7
    claim = await reported(store, Report(0.5, seven, (LogLine(AT, 1, odd),)))
    assert await shown(store, claim.id) == Report(0.5, "7", (LogLine(AT, 1, "<no text: ValueError>"),))


async def test_times_of_other_zones_are_the_same_instants(store: Store) -> None:
    there = AT.astimezone(timezone(timedelta(hours=5, minutes=30)))
    claim = await reported(store, Report(log=(LogLine(there, 1, "x"),)))
    assert (await shown(store, claim.id)).log == (LogLine(AT, 1, "x"),)


BAD: list[Any] = [
    {"progress": 0.5},
    None,
    Report(log=(LogLine(AT.replace(tzinfo=None), 1, "x"),)),
    Report(log=(LogLine(None, 1, "x"),)),  # type: ignore[arg-type]
    Report(log=(LogLine(AT, 0, "x"),)),
    Report(log=(LogLine(AT, 2**70, "x"),)),
]


@pytest.mark.parametrize("bad", BAD, ids=["dict", "none", "no zone", "no time", "attempt 0", "huge attempt"])
async def test_what_no_worker_can_mean_is_refused_and_nothing_changes(store: Store, lab: Lab, bad: Any) -> None:
    await add(store, 2)
    claims = await take(store)
    await lab.advance(1)
    before = await picture(store)
    with pytest.raises(Refused):
        await store.heartbeat("ann", claims, LEASE, reports={claims[0].id: HALF, claims[1].id: bad})
    assert await picture(store) == before
