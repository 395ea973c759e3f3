"""Schedules: what is refused, which ticks there are, which are due, and the one job of each."""

import asyncio
import os
from bisect import bisect
from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise
from pathlib import Path
from random import Random
from typing import Any
from uuid import RFC_4122, UUID
from zoneinfo import ZoneInfo

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dibs import Refused, limits, open_store
from dibs.outcome import Succeeded
from dibs.schedule import CATCH_UP, GRACE, Schedule, check, due, job_for, tick_key, ticks, upcoming

SECOND = timedelta(seconds=1)
MINUTE = timedelta(minutes=1)
HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
NEW_YEAR = datetime(2026, 1, 1, tzinfo=UTC)
NOON = NEW_YEAR + 12 * HOUR


def schedule(**fields: Any) -> Schedule:
    given: dict[str, Any] = {"name": "report", "task": "make_report"}
    if "every" not in fields:
        given["cron"] = "0 * * * *"
    return check(Schedule(**given | fields))


def hours(found: list[datetime]) -> list[int]:
    return [one.hour for one in found]


# --- what is refused --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "advice"),
    [
        ({"cron": None}, "needs either cron= or every="),
        ({"cron": "@daily", "every": HOUR}, "not both: leave one out"),
        ({"cron": "61 * * * *"}, "write five fields"),
        ({"cron": 5}, "cron must be a string"),
        ({"cron": "0 0\n* * *"}, "cron .* must be printable"),
        ({"cron": "@daily", "zone": "Mars/Olympus"}, "use a name such as 'UTC'"),
        ({"cron": "@daily", "zone": None}, "zone must be a string"),
        ({"every": timedelta(milliseconds=999)}, "every must be a timedelta from 0:00:01"),
        ({"every": timedelta(days=3651)}, "every must be a timedelta from 0:00:01 to 3650 days"),
        ({"every": 60}, "every must be a timedelta"),
        ({"every": HOUR, "zone": "Europe/Berlin"}, "leave zone out, or use cron="),
        ({"every": MINUTE, "jitter": HOUR}, "jitter must be a timedelta from 0:00:00 to 0:01:00"),
        ({"jitter": -SECOND}, "jitter must be a timedelta from 0"),
        ({"jitter": 2 * DAY}, "jitter must be a timedelta from 0:00:00 to 1 day"),
        ({"missed": "some"}, "missed must be one of skip, one, all"),
        ({"missed": ["one"]}, "missed must be one of skip, one, all"),
        ({"overlap": "queue"}, "overlap must be one of allow, skip"),
        ({"paused": 1}, "paused must be one of False, True"),
        ({"starts_at": datetime(2026, 1, 1)}, "starts_at must be a datetime with a time zone"),
        ({"ends_at": "tomorrow"}, "ends_at must be a datetime with a time zone"),
        ({"starts_at": NOON, "ends_at": NOON}, "ends_at must be later than starts_at"),
        ({"name": ""}, "the name of a schedule must have 1 to 200 characters"),
        ({"task": " x"}, "task .* must be printable"),
        ({"queue": "x" * 201}, "queue must have 1 to 200 characters"),
        ({"args": {1, 2}}, "args must be JSON"),
        ({"priority": 40_000}, "priority must be a whole number"),
        ({"max_attempts": 0}, "max_attempts must be a whole number"),
        ({"meta": []}, "meta must be a dict"),
        ({"meta": {"schedule": "mine"}}, "meta of a schedule must not hold 'schedule'"),
    ],
)
def test_a_schedule_that_cannot_be_kept_is_refused_with_advice(fields: dict[str, Any], advice: str) -> None:
    with pytest.raises(Refused, match=advice) as refusal:
        schedule(**fields)
    assert "\n" not in str(refusal.value)


def test_a_checked_schedule_has_its_times_in_utc_and_is_checked_to_the_same_again() -> None:
    there = timezone(2 * HOUR)
    checked = schedule(starts_at=NOON.astimezone(there), ends_at=(NOON + DAY).astimezone(there))
    assert (checked.starts_at, checked.ends_at) == (NOON, NOON + DAY)
    assert checked.starts_at is not None and checked.starts_at.tzinfo is UTC
    assert check(checked) == checked


def test_a_schedule_can_be_kept_as_json() -> None:
    made = schedule(every=90 * SECOND, jitter=SECOND, starts_at=NOON, args={"n": [1]}, meta={"a": 1}, missed="all")
    assert msgspec.json.decode(msgspec.json.encode(made), type=Schedule) == made


# --- ticks ------------------------------------------------------------------------------------


def test_ticks_come_after_the_first_moment_and_up_to_the_second() -> None:
    assert hours(ticks(schedule(), NOON, NOON + 3 * HOUR, 10)) == [13, 14, 15]
    assert hours(ticks(schedule(), NOON, NOON + 3 * HOUR, 2)) == [13, 14]
    assert ticks(schedule(), NOON, NOON, 10) == []


def test_ticks_are_in_utc_whatever_the_zone() -> None:
    daily = schedule(cron="30 9 * * *", zone="Asia/Kolkata")
    assert upcoming(daily, NEW_YEAR, 1) == [NEW_YEAR + 4 * HOUR]
    assert upcoming(daily, NEW_YEAR, 1)[0].tzinfo is UTC


def test_intervals_are_counted_from_1970_so_that_all_workers_agree() -> None:
    sevens = schedule(every=7 * MINUTE)
    found = upcoming(sevens, NOON, 3)
    assert {(one - datetime(1970, 1, 1, tzinfo=UTC)) % (7 * MINUTE) for one in found} == {timedelta(0)}
    assert upcoming(sevens, found[0] - timedelta(microseconds=1), 3) == found


def test_intervals_are_counted_from_the_start_if_there_is_one() -> None:
    sevens = schedule(every=7 * MINUTE, starts_at=NOON)
    assert upcoming(sevens, NEW_YEAR, 3) == [NOON, NOON + 7 * MINUTE, NOON + 14 * MINUTE]
    assert upcoming(sevens, NOON + 8 * MINUTE, 1) == [NOON + 14 * MINUTE]


@pytest.mark.parametrize("rhythm", [{"cron": "0 * * * *"}, {"every": HOUR}])
def test_the_start_is_part_of_a_schedule_and_the_end_is_not(rhythm: dict[str, Any]) -> None:
    short = schedule(**rhythm, starts_at=NOON, ends_at=NOON + 3 * HOUR)
    assert hours(upcoming(short, NEW_YEAR, 10)) == [12, 13, 14]
    assert upcoming(short, NOON + 2 * HOUR, 10) == []


def test_an_end_between_two_intervals_ends_with_the_one_before() -> None:
    short = schedule(every=HOUR, starts_at=NOON, ends_at=NOON + 150 * MINUTE)
    assert hours(upcoming(short, NEW_YEAR, 10)) == [12, 13, 14]


def test_a_paused_schedule_has_nothing_coming_and_nothing_due() -> None:
    paused = schedule(paused=True, missed="all")
    assert upcoming(paused, NOON, 3) == []
    assert due(paused, NEW_YEAR, NOON) == []


@given(
    every=st.integers(1_000_000, 10**12).map(lambda micros: timedelta(microseconds=micros)),
    cut=st.integers(0, 10**12),
)
def test_a_span_cut_in_two_has_the_ticks_of_both_parts(every: timedelta, cut: int) -> None:
    made = schedule(every=every)
    middle, end = NOON + timedelta(microseconds=cut), NOON + timedelta(microseconds=10**12)
    both = ticks(made, NOON, middle, 100) + ticks(made, middle, end, 100)
    assert both[:100] == ticks(made, NOON, end, 100)


# --- what is due ------------------------------------------------------------------------------


@pytest.mark.parametrize("missed", ["skip", "one", "all"])
def test_a_tick_is_due_on_the_dot_and_for_as_long_as_the_grace_lasts(missed: str) -> None:
    hourly, last = schedule(missed=missed), NOON - MINUTE
    assert due(hourly, last, NOON - timedelta(microseconds=1)) == []
    assert due(hourly, last, NOON) == [NOON]
    assert due(hourly, last, NOON + GRACE - timedelta(microseconds=1)) == [NOON]
    assert due(hourly, NOON, NOON + SECOND) == []


@pytest.mark.parametrize(("missed", "expected"), [("skip", []), ("one", [12]), ("all", [9, 10, 11, 12])])
def test_after_an_outage_the_missed_ticks_are_gone_or_the_last_or_all_are_due(missed: str, expected: list[int]) -> None:
    assert hours(due(schedule(missed=missed), NOON - 4 * HOUR, NOON + 10 * MINUTE)) == expected


@pytest.mark.parametrize(("missed", "expected"), [("skip", [12]), ("one", [12]), ("all", [9, 10, 11, 12])])
def test_a_tick_that_is_on_time_stands_for_the_one_that_would_be_made_up(missed: str, expected: list[int]) -> None:
    assert hours(due(schedule(missed=missed), NOON - 4 * HOUR, NOON + SECOND)) == expected


@pytest.mark.parametrize("missed", ["skip", "one", "all"])
def test_ticks_closer_together_than_two_looks_are_all_due(missed: str) -> None:
    seconds = schedule(every=SECOND, missed=missed)
    assert due(seconds, NOON, NOON + 10 * SECOND) == [NOON + number * SECOND for number in range(1, 11)]


@pytest.mark.parametrize("missed", ["skip", "one", "all"])
def test_a_schedule_that_nobody_looked_at_before_has_missed_nothing(missed: str) -> None:
    old = schedule(missed=missed, starts_at=NEW_YEAR - 365 * DAY)
    assert due(old, None, NOON + 10 * MINUTE) == []
    assert due(old, None, NOON + SECOND) == [NOON]


def test_only_so_many_missed_ticks_are_made_up_for_and_they_are_the_latest() -> None:
    now = NOON + 40 * SECOND
    found = due(schedule(cron="* * * * *", missed="all"), NOON - 365 * DAY, now)
    assert found == [NOON - number * MINUTE for number in reversed(range(CATCH_UP))]


@pytest.mark.parametrize("rhythm", [{"cron": "0 0 29 2 *"}, {"cron": "* * * * *"}, {"every": SECOND}])
def test_a_long_outage_is_made_up_for_by_the_very_last_tick(rhythm: dict[str, Any]) -> None:
    made, now = schedule(**rhythm), datetime(2028, 3, 1, 12, 0, 45, tzinfo=UTC)
    found = due(schedule(**rhythm, ends_at=now - MINUTE), NEW_YEAR, now)
    assert len(found) == 1
    assert ticks(made, found[0], now - MINUTE - timedelta(microseconds=1), 1) == []


@pytest.mark.parametrize("missed", ["skip", "one", "all"])
def test_a_clock_that_is_set_back_an_hour_makes_no_tick_run_twice(missed: str) -> None:
    quarters = schedule(cron="*/15 * * * *", missed=missed)
    found: list[datetime] = []
    last, now, back = NOON - SECOND, NOON, False
    while now < NOON + 4 * HOUR:
        found += due(quarters, last, now)
        last = max(last, now)
        if now >= NOON + 2 * HOUR and not back:
            now, back = now - HOUR, True
        now += 10 * SECOND
    assert found == ticks(quarters, NOON - SECOND, last, 100)
    assert len(found) == 16


def test_a_worker_that_starts_after_the_clock_was_set_back_makes_the_same_jobs_again() -> None:
    before, again = (due(schedule(), last, NOON + SECOND) for last in (NOON - MINUTE, None))
    assert [job_for(schedule(), tick) for tick in before] == [job_for(schedule(), tick) for tick in again] != []


# --- the job of a tick ------------------------------------------------------------------------


def test_a_job_is_what_the_schedule_says_and_names_its_tick() -> None:
    fields = {"queue": "slow", "priority": -5, "max_attempts": 2, "args": {"n": 1}}
    job = job_for(schedule(**fields, meta={"team": "a"}), NOON)
    assert {name: getattr(job, name) for name in fields} == fields
    assert (job.task, job.run_at, job.key) == ("make_report", NOON, None)
    assert job.meta == {"team": "a", "schedule": {"name": "report", "tick": "2026-01-01T12:00:00Z"}}


def test_the_id_of_a_tick_is_a_uuid_of_version_7_with_the_time_of_the_tick() -> None:
    made = job_for(schedule(), NOON).id
    assert (made.version, made.variant) == (7, RFC_4122)
    assert made.int >> 80 == NOON.timestamp() * 1_000
    assert limits.job_id(made) == made


def test_the_id_of_a_tick_never_changes() -> None:
    """Another version of dibs may be running beside this one: the same tick must have the same id."""
    assert job_for(schedule(), NOON).id == UUID("019b796d-d600-714a-b151-7433f2df39dd")


def test_a_changed_schedule_has_the_same_ids_for_the_same_ticks() -> None:
    changed = schedule(every=HOUR, args=[1], queue="other", jitter=MINUTE, overlap="skip")
    assert job_for(changed, NOON).id == job_for(schedule(), NOON).id
    assert job_for(schedule(), NOON.astimezone(timezone(HOUR))).id == job_for(schedule(), NOON).id


names = st.text(st.characters(exclude_categories=["C", "Z"]), min_size=1, max_size=200)


@given(one=st.tuples(names, st.integers(0, 10**9)), other=st.tuples(names, st.integers(0, 10**9)))
def test_two_ticks_have_two_ids_and_two_keys(one: tuple[str, int], other: tuple[str, int]) -> None:
    made = [(schedule(name=name), NOON + timedelta(microseconds=micros)) for name, micros in (one, other)]
    differ = one != other
    assert (job_for(*made[0]).id != job_for(*made[1]).id) is differ
    assert (tick_key(*made[0]) != tick_key(*made[1])) is differ


@given(name=names, micros=st.integers(0, 10**9))
def test_the_key_of_a_tick_is_a_name_however_long_the_name_of_the_schedule(name: str, micros: int) -> None:
    key = tick_key(schedule(name=name), NOON + timedelta(microseconds=micros))
    assert limits.name(key, "key") == key


def test_the_key_of_a_tick_can_be_read() -> None:
    assert tick_key(schedule(), NOON) == "report@2026-01-01T12:00:00Z"
    long = [tick_key(schedule(name="x" * 199 + end), NOON) for end in "ab"]
    assert {len(key) for key in long} == {200}
    assert len(set(long)) == 2


@given(name=names, hour=st.integers(0, 10_000))
def test_jitter_delays_a_job_by_less_than_it_and_the_same_everywhere(name: str, hour: int) -> None:
    tick = NOON + hour * HOUR
    jobs = [job_for(schedule(name=name, jitter=10 * MINUTE), tick) for _ in range(2)]
    assert jobs[0] == jobs[1]
    assert jobs[0].run_at is not None
    assert tick <= jobs[0].run_at < tick + 10 * MINUTE


def test_jitter_spreads_the_jobs_of_one_moment_evenly() -> None:
    runs = [job_for(schedule(name=f"shop-{number}", jitter=10 * MINUTE), NOON).run_at for number in range(1_000)]
    tenths = [int((run - NOON) / MINUTE) for run in runs if run is not None]
    assert all(60 <= tenths.count(tenth) <= 140 for tenth in range(10))


@given(name=names)
def test_jobs_of_a_schedule_that_must_not_overlap_share_a_key(name: str) -> None:
    alone = schedule(name=name, overlap="skip")
    keys = {job_for(alone, NOON).key, job_for(alone, NOON + HOUR).key}
    assert len(keys) == 1
    assert limits.name(keys.pop(), "key")


# --- in a store -------------------------------------------------------------------------------

urls = pytest.mark.parametrize("url", ["memory://", "sqlite:///{path}/jobs.db"])


@urls
async def test_a_tick_is_stored_once_by_fifty_workers_also_after_its_job_has_finished(url: str, tmp_path: Path) -> None:
    store = open_store(url.format(path=tmp_path))
    await store.setup()
    try:
        job = job_for(schedule(), NOON)
        answers = await asyncio.gather(*(store.enqueue([job]) for _ in range(50)))
        assert sum(answer[0].created for answer in answers) == 1
        (claim,) = await store.claim("default", "w", 10, MINUTE)
        await store.settle([claim.settled(Succeeded(None))])
        assert [answer.created for answer in await store.enqueue([job])] == [False]
        assert await store.claim("default", "w", 10, MINUTE) == []
    finally:
        await store.close()


@urls
async def test_a_tick_is_left_out_while_the_last_one_is_unfinished_if_they_must_not_overlap(
    url: str, tmp_path: Path
) -> None:
    store = open_store(url.format(path=tmp_path))
    await store.setup()
    try:
        jobs = [job_for(schedule(overlap="skip"), NEW_YEAR - number * HOUR) for number in (3, 2, 1)]
        assert [answer.created for answer in await store.enqueue(jobs[:2])] == [True, False]
        (claim,) = await store.claim("default", "w", 10, MINUTE)
        assert [answer.created for answer in await store.enqueue([jobs[1]])] == [False]
        await store.settle([claim.settled(Succeeded(None))])
        assert [answer.created for answer in await store.enqueue([jobs[2]])] == [True]
    finally:
        await store.close()


# --- a year -----------------------------------------------------------------------------------

ZONES = ("Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca", "Asia/Kolkata")
RHYTHMS: tuple[dict[str, Any], ...] = (
    {"cron": "30 2 * * *"},
    {"cron": "0 * * * SUN"},  # the day on which clocks change
    {"cron": "*/20 1-3 * * SUN"},
    {"cron": "15,45 2 * * *"},
    {"cron": "0 */6 * * *"},
    {"cron": "0 9 * * MON-FRI"},
    {"cron": "0 0 L * *"},
    {"every": timedelta(hours=5)},
    {"every": timedelta(minutes=197), "starts_at": NEW_YEAR + 7 * SECOND},
    {"every": timedelta(days=1)},
)


FULL = os.environ.get("DIBS_FAULTS") == "full"
YEAR = (NEW_YEAR, NEW_YEAR + 365 * DAY)
RARE = 400
"""Schedules with no more ticks than this are looked at for the whole year; the others in the days that matter."""


def days_that_matter() -> list[tuple[datetime, datetime]]:
    """A week around each change of the clocks in any of the zones, and a quiet one in July; those that meet are one."""
    days = [NEW_YEAR + number * DAY for number in range(365)]
    changes = {day for zone in map(ZoneInfo, ZONES) for day in days if _offset(day, zone) != _offset(day + DAY, zone)}
    weeks: list[tuple[datetime, datetime]] = []
    for day in sorted({*changes, datetime(2026, 7, 15, tzinfo=UTC)}):
        start, end = day - 3 * DAY, day + 4 * DAY
        if weeks and start <= weeks[-1][1]:
            start = weeks.pop()[0]
        weeks.append((start, end))
    return weeks


def _offset(day: datetime, zone: ZoneInfo) -> timedelta | None:
    return day.astimezone(zone).utcoffset()


def of_a_year(number: int, missed: str, end: datetime = YEAR[1]) -> Schedule:
    rhythm = RHYTHMS[number % len(RHYTHMS)]
    zone = {"zone": ZONES[(number + number // len(RHYTHMS)) % len(ZONES)]} if "cron" in rhythm else {}
    return schedule(name=f"schedule-{number}", missed=missed, ends_at=end, **rhythm, **zone)


def stretches(number: int) -> list[tuple[datetime, datetime]]:
    """Which parts of the year are simulated: all of it at full size."""
    return [YEAR] if FULL or len(ticks(of_a_year(number, "one"), *YEAR, RARE)) < RARE else days_that_matter()


def looks_at(every_tick: list[datetime], stretch: tuple[datetime, datetime], dice: Random) -> list[datetime]:
    """When somebody looks: soon after each tick and now and then, but for a few outages, after which somebody does."""
    start, end = stretch
    length = end - start
    outages = [
        (begin, begin + dice.random() * min(3 * DAY, length / 10))
        for begin in (start + dice.random() * (length - 3 * DAY) for _ in "1234")
    ]
    looks = [tick + dice.random() * GRACE * 0.9 for tick in every_tick]
    looks += [start + dice.random() * length for _ in range(50)]
    alive = [look for look in looks if not any(begin <= look < over for begin, over in outages)]
    return sorted([*alive, *(over for _, over in outages), end + 5 * DAY])


def enqueued(made: Schedule, start: datetime, looks: list[datetime], dice: Random) -> list[UUID]:
    """What fifty workers enqueue. One in twenty has not heard what was handled since it last looked itself."""
    handled, own = start, [start] * 50
    found: list[UUID] = []
    for now in looks:
        worker = dice.randrange(50)
        last = own[worker] if dice.random() < 0.05 else handled
        found += [job_for(made, tick).id for tick in due(made, last, now)]
        handled = own[worker] = now
    return found


def expected(missed: str, every_tick: list[datetime], start: datetime, looks: list[datetime]) -> set[datetime]:
    """By the words of the policy, look by look."""
    if missed == "all":
        return set(every_tick)
    found: set[datetime] = set()
    for before, now in pairwise([start, *looks]):
        new = every_tick[bisect(every_tick, before) : bisect(every_tick, now)]
        on_time = [tick for tick in new if tick > now - GRACE]
        found.update(on_time or (new[-1:] if missed == "one" else []))
    return found


def test_the_days_that_matter_have_every_change_of_the_clocks_in_them() -> None:
    weeks = days_that_matter()
    inside = [start + number * HOUR for start, end in weeks for number in range(int((end - start) / HOUR))]
    for zone, changes in zip(map(ZoneInfo, ZONES), (2, 2, 2, 2, 0), strict=True):
        hours_of_change = [hour for hour in inside if _offset(hour, zone) != _offset(hour + HOUR, zone)]
        assert len(hours_of_change) == changes, zone


@pytest.mark.parametrize(("missed", "numbers"), [("all", range(34)), ("one", range(34, 67)), ("skip", range(67, 100))])
def test_a_year_of_a_hundred_schedules_and_fifty_workers_gives_each_tick_once(missed: str, numbers: range) -> None:
    stored: set[UUID] = set()
    count = 0
    for number in numbers:
        for start, end in stretches(number):
            made, dice = of_a_year(number, missed, end), Random(f"{number} {start}")
            every_tick = ticks(made, start, end, 10_000)
            looks = looks_at(every_tick, (start, end), dice)
            wanted = {job_for(made, tick).id for tick in expected(missed, every_tick, start, looks)}
            assert set(enqueued(made, start, looks, dice)) == wanted
            stored |= wanted
            count += len(wanted)
    assert len(stored) == count > (20_000 if FULL else 6_000)
