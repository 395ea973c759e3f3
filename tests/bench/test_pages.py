"""Reports and drawings, of results that were made up for these tests."""

from pathlib import Path

import pytest

from bench.guard import Compared
from bench.lib.environment import Environment
from bench.peers import results as kept
from bench.peers.bouts import Run
from bench.peers.pages import ahead, body, overviews, sheets, write_docs
from bench.peers.plots import draw
from bench.peers.results import Measured, Results, cells
from bench.peers.workloads.lasting import quarters
from bench.peers.workloads.latency import waits
from bench.peers.workloads.throughput import early


def _measured(peer: str, rate: float, *, round: int = 0, problem: str | None = None, wrong: bool = False) -> Measured:
    return Measured(
        workload="throughput",
        variant="async, 1 process",
        store="postgres",
        peer=peer,
        setting="default",
        round=round,
        jobs=1000,
        figures={} if problem else {"rate": rate, "memory": 50.0},
        problem=problem,
        wrong=wrong,
    )


@pytest.fixture
def results() -> Results:
    place = Environment(
        date="2020-01-01",
        commit="abc",
        dibs="0",
        python="CPython",
        system="Linux",
        cores=2,
        versions={"PostgreSQL": "99"},
    )
    measured = [_measured("dibs-postgres", 1000.0), _measured("pgqueuer", 2000.0), _measured("limit-postgres", 4000.0)]
    return Results(
        environment=place, code="abc", machine="a machine", measured=measured, missing={"pg-boss": "no node here"}
    )


def test_a_figure_is_the_median_of_its_rounds() -> None:
    (cell,) = cells([_measured("dibs-postgres", rate, round=number) for number, rate in enumerate((1.0, 9.0, 2.0))])
    assert cell.figures["rate"] == 2.0
    assert cell.rounds == 3


def test_one_round_with_a_problem_voids_the_others() -> None:
    (cell,) = cells(
        [_measured("pgqueuer", 5.0), _measured("pgqueuer", 0.0, round=1, problem="1 of 9 jobs did not run")]
    )
    assert cell.figures == {}
    assert cell.problem == "1 of 9 jobs did not run"


def test_the_overview_says_who_is_best_and_where_a_peer_is_better(results: Results) -> None:
    (sheet,) = overviews(results)
    assert sheet.rows == [
        ("dibs-postgres", "1,000", "**50**"),
        ("pgqueuer", "**2,000**", "50"),
        ("*limit-postgres*", "4,000", "50"),
    ]
    assert list(ahead(results)) == ["- PostgreSQL, jobs/s, 1 process: pgqueuer (default) 2,000; dibs 1,000."]


def test_every_figure_stands_beside_the_limit(results: Results) -> None:
    (sheet,) = sheets(results)
    assert [(row[0], row[-1]) for row in sheet.rows] == [
        ("dibs-postgres", "25%"),
        ("pgqueuer", "50%"),
        ("limit-postgres", "–"),
    ]


def test_a_page_names_what_did_not_run_and_what_has_no_figure(results: Results) -> None:
    results.measured.append(_measured("procrastinate", 0.0, problem="2 ran more than once"))
    page = body(results)
    assert "- pg-boss: no node here" in page
    assert "- procrastinate (default), throughput, async, 1 process: 2 ran more than once" in page
    assert "no figure: 2 ran more than once" in page


def test_drawings_come_in_both_themes_and_formats_and_go_into_the_page(results: Results, tmp_path: Path) -> None:
    drawn = draw(results, tmp_path / "bench" / "plots")
    assert {path.name for path in drawn} == {
        f"throughput-{theme}.{kind}" for theme in ("light", "dark") for kind in ("png", "svg")
    }
    assert all(path.stat().st_size > 500 for path in drawn)
    page = tmp_path / "docs" / "benchmarks.md"
    page.parent.mkdir()
    page.write_text("before\n<!-- figures: begin -->\nyesterday\n<!-- figures: end -->\nafter\n")
    write_docs(results, page, drawn)
    text = page.read_text()
    assert text.startswith("before\n") and text.endswith("after\n") and "yesterday" not in text
    assert 'src="../bench/plots/throughput-light.svg"' in text


def test_results_of_the_same_code_and_machine_add_up_and_others_are_forgotten(results: Results, tmp_path: Path) -> None:
    path = tmp_path / "latest.json"
    results.machine, results.code = kept.machine(), kept.code()
    kept.save(results, path)
    again = kept.load(path, results.environment)
    again.add(_measured("pgqueuer", 4000.0))
    assert {cell.peer: (cell.rounds, cell.figures["rate"]) for cell in cells(again.measured)} == {
        "dibs-postgres": (1, 1000.0),
        "limit-postgres": (1, 4000.0),
        "pgqueuer": (2, 3000.0),
    }
    results.code = "another tree"
    kept.save(results, path)
    assert kept.load(path, results.environment).measured == []


def test_only_a_problem_in_which_no_job_went_wrong_is_forgotten_in_the_next_run(results: Results) -> None:
    results.measured = [
        _measured("pgqueuer", 0.0, problem="stalled"),
        _measured("dbos", 0.0, problem="lost a job", wrong=True),
    ]
    results.add(_measured("pgqueuer", 5.0))
    results.add(_measured("dbos", 5.0))
    assert {cell.peer: cell.problem for cell in cells(results.measured)} == {"pgqueuer": None, "dbos": "lost a job"}


def test_a_loss_is_more_than_fifteen_percent() -> None:
    lost = [Compared(store="redis", what="", base=1, tree=1, change=change).lost for change in (0.5, -0.14, -0.16)]
    assert lost == [False, False, True]


def test_waits_are_in_milliseconds() -> None:
    found = waits([Run(number, 10.0 + number / 1000, 10.0) for number in range(101)])
    assert found == pytest.approx({"p50": 50.0, "p99": 99.0, "max": 100.0})


def test_quarters_are_rates_of_the_first_and_the_last() -> None:
    starts = [number / 100 for number in range(40)] + [0.4 + number / 10 for number in range(40)]
    assert quarters([Run(number, start, 0.0) for number, start in enumerate(starts)]) == pytest.approx((100.0, 10.0))


def test_early_is_the_share_of_low_jobs_that_started_before_the_last_high_one() -> None:
    runs = [Run(number, float(start), 0.0) for number, start in enumerate((0, 2, 5, 1, 3, 0))]
    assert early(runs) == 50.0
