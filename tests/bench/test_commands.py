"""The commands behind ``make bench`` and ``make bench-guard``."""

from pathlib import Path

import pytest
from click.testing import CliRunner

from bench import compare, guard, since
from bench.guard import LOSS, Compared
from bench.peers.provision import own_home
from bench.peers.table import EVERY, PEERS
from bench.peers.workloads import WORKLOADS

SCRIPTS = Path(compare.__file__).parent / "peers" / "scripts"


def test_the_list_names_every_system_and_workload() -> None:
    answer = CliRunner().invoke(compare.main, ["--list"])
    assert answer.exit_code == 0
    assert all(name in answer.output for name in (*(peer.name for peer in PEERS), *WORKLOADS))


@pytest.mark.parametrize("option", ["--only", "--workload"])
def test_a_name_that_does_not_exist_is_refused_with_those_that_do(option: str) -> None:
    answer = CliRunner().invoke(compare.main, [option, "nobody"])
    assert answer.exit_code == 2
    assert "'nobody' is not among" in answer.output


@pytest.mark.parametrize("name", EVERY)
def test_every_system_has_its_script(name: str) -> None:
    script = EVERY[name].script
    assert (SCRIPTS / (script if script.endswith(".cjs") else f"{script}.py")).is_file()


def test_the_guard_refuses_a_commit_that_is_not_there() -> None:
    answer = CliRunner().invoke(guard.main, ["--base", "no-such-commit"])
    assert answer.exit_code == 2
    assert "no-such-commit" in answer.output


def test_the_guard_says_in_a_table_what_was_lost(capsys: pytest.CaptureFixture[str]) -> None:
    found = [
        Compared(store="redis", what="throughput", base=100.0, tree=100 * (1 - LOSS) - 1, change=-LOSS - 0.01),
        Compared(store="redis", what="latency", base=1.0, tree=1.1, change=-0.09),
    ]
    guard.show(found, "main")
    lines = [line for line in capsys.readouterr().out.splitlines() if "redis" in line]
    assert ["LOST" in line for line in lines] == [True, False]


def test_two_trees_take_turns_and_each_job_is_proved(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sides = tuple((own_home(), f"sqlite:///{tmp_path}/{name}.db") for name in ("base", "tree"))
    found = since._compare("sqlite", 5, 10, 4, sides)
    assert 0 < found.lower <= found.ratio <= found.upper
    assert found.tree > 0
    since.show([found], "main")
    assert "sqlite" in capsys.readouterr().out


def test_a_side_that_fails_gives_no_figure(tmp_path: Path) -> None:
    with pytest.raises(SystemExit) as ended, since.Side(own_home(), f"sqlite:///{tmp_path}/jobs.db", 1, 1) as side:
        side.take(2)
    assert ended.value.code == 2
