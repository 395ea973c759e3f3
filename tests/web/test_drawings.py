"""What the dashboard draws: charts, a job's time line, a flow's graph. Read back as XML, as a browser would."""

from datetime import UTC, datetime, timedelta
from itertools import pairwise
from xml.etree import ElementTree

import pytest
from markupsafe import Markup

from dibs.http.dashboard import graph, timeline
from dibs.http.dashboard.charts import Series, bar_chart, line_chart, nice_ticks, number, seconds
from dibs.http.dashboard.graph import Node
from dibs.http.service import shown
from dibs.http.service.data import JobDetail
from dibs.ids import new_id
from dibs.job import AttemptError, Job, State

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
STARTS = [NOON + timedelta(minutes=5 * n) for n in range(12)]
HOSTILE = "<script>alert(1)</script>\"'&"


def drawn(picture: Markup) -> ElementTree.Element:
    return ElementTree.fromstring(str(picture))


def classes(picture: Markup, word: str) -> list[ElementTree.Element]:
    return [each for each in drawn(picture).iter() if word in each.get("class", "").split()]


# --- charts ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("highest", [0, 0.003, 1, 7, 99, 100, 101, 12_345, 1e9])
def test_ticks_are_few_and_reach_the_highest(highest: float) -> None:
    ticks = nice_ticks(highest)
    assert ticks[0] == 0
    assert ticks[-1] >= highest
    assert 2 <= len(ticks) <= 6
    assert len({round(b - a, 9) for a, b in pairwise(ticks)}) == 1


def test_numbers_are_short() -> None:
    assert [number(each) for each in (0, 7, 1200, 3_500_000)] == ["0", "7", "1.2k", "3.5M"]
    assert [seconds(each) for each in (0, 0.000_05, 0.0042, 2, 90, 7200)] == [
        "0 s",
        "50 µs",
        "4.2 ms",
        "2 s",
        "1.5 min",
        "2 h",
    ]


def test_bars_stand_on_each_other_and_on_the_ground() -> None:
    chart = bar_chart("jobs", STARTS, [Series("a", (10.0,) * 12, "succeeded"), Series("b", (5.0,) * 12, "failed")])
    lower, upper = classes(chart, "succeeded"), classes(chart, "failed")
    assert len(lower) == len(upper) == 12
    for below, above in zip(lower, upper, strict=True):
        assert below.get("x") == above.get("x")
        top = float(above.get("y", 0)) + float(above.get("height", 0))
        assert top == pytest.approx(float(below.get("y", 0)), abs=0.2)


def test_a_line_has_a_gap_where_nobody_measured() -> None:
    values = (1.0, 2.0, None, None, 3.0, *(4.0,) * 7)
    chart = line_chart("wait", STARTS, [Series("p50", values, "s1")], seconds)
    assert len([each for each in classes(chart, "line") if each.tag == "path"]) == 2
    assert len(classes(chart, "dot")) == 10


def test_a_chart_says_in_words_what_it_shows() -> None:
    chart = drawn(line_chart("wait", STARTS, [Series("p99", (0.5,) * 11 + (0.25,), "s1")], seconds))
    assert chart.get("aria-label") == "wait over 55 min: p99 250 ms now, 500 ms at most"


@pytest.mark.parametrize("chart", [line_chart, bar_chart])
def test_a_chart_of_nothing_says_so(chart: object) -> None:
    assert "nothing was measured" in str(chart("jobs", STARTS, [Series("a", (None,) * 12)]))  # type: ignore[operator]


# --- time lines -----------------------------------------------------------------------------------------------


def job(state: State, **more: object) -> JobDetail:
    fields = {"id": new_id(), "queue": "q", "task": "t", "args": {}, "priority": 0, "run_at": NOON, "epoch": 1}
    given = {"created_at": NOON, "attempts": 1, "max_attempts": 5, "worker": "w", **more}
    return shown.detail(Job(state=state, **{**fields, **given}), NOON)  # type: ignore[arg-type]


def failed_attempt(number: int, begins: float, ends: float, error: str = "boom") -> AttemptError:
    at = [NOON + timedelta(seconds=each) for each in (begins, ends)]
    return AttemptError(attempt=number, epoch=number, worker="w", started_at=at[0], ended_at=at[1], error=error)


def test_a_life_is_drawn_piece_by_piece() -> None:
    one = job(
        State.SUCCEEDED,
        attempts=3,
        errors=(failed_attempt(1, 1, 2), failed_attempt(2, 5, 6, "lease expired")),
        started_at=NOON + timedelta(seconds=10),
        finished_at=NOON + timedelta(seconds=12),
    )
    found = timeline.pieces(one, NOON + timedelta(hours=1))
    kinds = ["waiting", "failed", "waiting", "expired", "waiting", "succeeded"]
    assert [piece.kind for piece in found] == kinds
    assert all(before.ends == after.begins for before, after in pairwise(found))
    assert (found[0].begins, found[-1].ends) == (NOON, one.finished_at)
    assert len(classes(timeline.draw(one, NOON), "piece")) == 6


def test_what_is_not_over_goes_on_until_now_and_what_is_due_later_beyond() -> None:
    now = NOON + timedelta(seconds=30)
    running = timeline.pieces(job(State.RUNNING, started_at=NOON + timedelta(seconds=5)), now)
    assert [(piece.kind, piece.ends) for piece in running][-1] == ("running", now)
    due = NOON + timedelta(minutes=5)
    queued = timeline.pieces(job(State.QUEUED, attempts=0, run_at=due), now)
    assert [(piece.kind, piece.ends) for piece in queued] == [("waiting", now), ("scheduled", due)]


def test_a_job_that_was_cancelled_before_it_ran_only_waited() -> None:
    end = NOON + timedelta(seconds=9)
    [piece] = timeline.pieces(job(State.CANCELLED, attempts=0, worker=None, finished_at=end), NOON)
    assert (piece.kind, piece.ends) == ("waiting", end)


# --- graphs ---------------------------------------------------------------------------------------------------

DIAMOND = [
    Node("fetch", "succeeded"),
    Node("parse", "running", ("fetch",)),
    Node("check", "succeeded", ("fetch",)),
    Node("index", "waiting", ("parse", "check")),
]


def test_every_step_stands_behind_all_that_it_needs() -> None:
    needs = {node.name: node.needs for node in DIAMOND}
    assert [set(layer) for layer in graph.layers(needs)] == [{"fetch"}, {"parse", "check"}, {"index"}]


def test_a_graph_has_a_box_for_each_step_and_a_line_for_each_need() -> None:
    picture = graph.draw(DIAMOND)
    assert len(classes(picture, "step")) == 4
    assert len(classes(picture, "edge")) == 4
    assert len(classes(picture, "met")) == 3  # fetch to two, check to index


def test_needs_that_are_gone_are_left_out() -> None:
    picture = graph.draw([Node("index", "queued", ("pruned",))])
    assert (len(classes(picture, "step")), len(classes(picture, "edge"))) == (1, 0)


def test_lines_do_not_cross_where_they_need_not() -> None:
    pairs: dict[str, tuple[str, ...]] = {f"a{n}": () for n in range(6)} | {f"b{n}": (f"a{5 - n}",) for n in range(6)}
    first, second = graph.arranged(pairs)
    assert [pairs[name][0] for name in second] == first


def test_a_flow_of_ten_thousand_steps_is_drawn_by_layers() -> None:
    wide = [
        Node("begin", "succeeded"),
        *(Node(f"s{n}", "failed" if n == 7 else "queued", ("begin",)) for n in range(9_999)),
    ]
    picture = graph.draw(wide)
    boxes = classes(picture, "step")
    assert len(boxes) == 2
    assert "failed" in boxes[1].get("class", "")
    assert "1 failed, 9998 queued" in str(picture)


def test_a_circle_does_not_hang_the_page() -> None:
    assert len(classes(graph.draw([Node("a", "waiting", ("b",)), Node("b", "waiting", ("a",))]), "step")) == 2


# --- what others wrote ----------------------------------------------------------------------------------------


def test_hostile_names_are_text_in_every_drawing() -> None:
    error = failed_attempt(1, 1, 2, HOSTILE)
    pictures = [
        line_chart(HOSTILE, STARTS, [Series(HOSTILE, (1.0,) * 12, "s1")]),
        bar_chart(HOSTILE, STARTS, [Series(HOSTILE, (1.0,) * 12, "s1")]),
        timeline.draw(job(State.FAILED, errors=(error,), worker=HOSTILE, finished_at=error.ended_at), NOON),
        graph.draw([Node(HOSTILE, "queued", link=f"/x?{HOSTILE}", words=HOSTILE)]),
    ]
    for picture in pictures:
        assert "<script" not in picture
        assert HOSTILE in "".join(drawn(picture).itertext())
