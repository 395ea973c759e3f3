"""`dibs flows`: finding and showing flows, cancelling them, and running them again."""

import re
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import pytest
from click.shell_completion import ShellComplete

from dibs.cli import cli
from dibs.cli.flow_tree import draw
from dibs.clock import system_clock
from dibs.ids import new_id
from dibs.job import Job, NewFlow, NewJob, NewStep, State
from dibs.outcome import Failed, Succeeded
from tests.unit.commands import Shell

DIAMOND = {"fetch": "", "left": "fetch", "right": "fetch", "total": "left right", "report": "total"}


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(tmp_path)


def start(shell: Shell, name: str = "import", **needs: str) -> UUID:
    steps = [
        NewStep(name=step, job=NewJob(task="send", queue="mail", max_attempts=1), needs=tuple(some.split()))
        for step, some in (needs or DIAMOND).items()
    ]
    flow = NewFlow(name=name, steps=tuple(steps), meta={"order": 7})
    shell.ask(lambda store: store.start(flow))
    return flow.id


def states(shell: Shell, flow: UUID) -> dict[str, str]:
    return {step["step"]: step["state"] for step in shell.json("flows", "show", flow)["steps"]}


# --- looking ------------------------------------------------------------------------------------------------


def test_list_shows_the_newest_first_and_says_that_there_are_more(shell: Shell) -> None:
    first, second, third = (start(shell, name) for name in ("one", "two", "three"))
    done = shell("flows", "-n", 2)
    assert done.exit_code == 0
    assert [line.split()[0] for line in done.stdout.splitlines()] == ["FLOW", str(third), str(second)]
    assert f"--after {second}" in done.stderr
    rest = shell.json("flows", "list", "--after", second)
    assert ([flow["id"] for flow in rest["flows"]], rest["after"]) == ([str(first)], None)


def test_a_state_narrows_the_list(shell: Shell) -> None:
    start(shell, "one", a="")
    shell.finish(Failed("no"))
    running = start(shell, "two")
    assert [flow["name"] for flow in shell.json("flows", "list", "--state", "failed")["flows"]] == ["one"]
    assert shell("flows", "list", "--state", "running", "--ids").stdout == f"{running}\n"
    assert shell("flows", "list", "--state", "cancelled").stdout == "no flow matches\n"
    assert shell("flows", "list", "--state", "waiting").exit_code == 2


@pytest.mark.parametrize("columns", [50, 80, 120])
def test_lists_and_pages_fit_the_window_and_never_cut_an_id(shell: Shell, columns: int) -> None:
    long = "a_name_that_is_longer_than_most_windows_are_wide_" * 4
    flow = start(shell, long, **{"a": "", "b": "a", "c": "a", long: "b c"})
    for words in (("list",), ("show", flow)):
        lines = shell("flows", *words, COLUMNS=str(columns)).stdout.splitlines()
        assert max(len(line) for line in lines) <= columns, lines
        assert any(str(flow) in line for line in lines)


def test_show_draws_the_steps_with_states_needs_and_errors(shell: Shell) -> None:
    flow = start(shell)
    shell.finish(Succeeded(1))
    shell.finish(Failed("no such file"))
    shown = shell("flows", "show", flow, COLUMNS="80").stdout
    assert "import" in shown
    assert "5/5 ended: 1 succeeded, 1 failed, 3 cancelled" in shown
    assert '{"order":7}' in shown
    drawing = shown[shown.index("STEP") :].splitlines()[1:]
    assert [re.sub(r" +(succeeded|failed|cancelled).*", r" \1", line) for line in drawing] == [
        "fetch succeeded",
        "├─ left failed",
        "│     attempt 1 of 1: no such file",
        "└─ right cancelled",
        "   ↓ total cancelled",
        "      needs left too",
        "   ↓ report cancelled",
    ]


def test_show_says_who_runs_a_step(shell: Shell) -> None:
    flow = start(shell)
    shell.claim(worker="box-7")
    assert "on box-7" in shell("flows", "show", flow).stdout


def test_show_as_json_is_the_flow_and_its_steps(shell: Shell) -> None:
    flow = start(shell)
    shown = shell.json("flows", "show", flow)
    assert (shown["flow"]["name"], shown["flow"]["state"], shown["flow"]["meta"]) == ("import", "running", {"order": 7})
    assert {step["step"]: " ".join(step["needs"]) for step in shown["steps"]} == DIAMOND


def test_a_flow_of_very_many_steps_is_shown_in_part_and_the_rest_is_named(shell: Shell) -> None:
    flow = start(shell, **{f"s{n}": "" if n == 0 else f"s{n - 1}" for n in range(1_000)})
    lines = shell("flows", "show", flow, COLUMNS="80").stdout.splitlines()
    assert len(lines) < 250
    assert lines[-1] == f"and 800 more: dibs jobs list --flow {flow} -n 1000"[:80]


def test_a_flow_that_is_not_there_is_not_found(shell: Shell) -> None:
    start(shell)
    done = shell("flows", "show", new_id())
    assert done.exit_code == 1
    assert "there is no flow" in done.stderr
    assert "is no flow id: copy one from dibs flows list" in shell("flows", "show", "x").output


def test_control_characters_in_errors_do_not_reach_the_screen(shell: Shell) -> None:
    flow = start(shell, a="")
    shell.finish(Failed("\x1b[2J gone"))
    assert "\x1b" not in shell("flows", "show", flow).stdout


def test_a_step_shown_as_a_job_names_its_flow_and_its_needs(shell: Shell) -> None:
    flow = start(shell)
    shell.finish(Succeeded({"pages": 3}))
    [left] = [step for step in shell.json("flows", "show", flow)["steps"] if step["step"] == "left"]
    shown = shell("jobs", "show", left["id"]).stdout
    assert f"{flow} (import, running)" in shown
    assert "fetch" in shown[shown.index("needs") :].splitlines()[0]
    assert '{"fetch":{"pages":3}}' in shown
    assert shell.json("jobs", "show", left["id"])["flow"]["name"] == "import"


def test_jobs_are_found_by_their_flow(shell: Shell) -> None:
    flow = start(shell)
    shell.enqueue(2)
    assert shell.json("jobs", "list", "--flow", flow)["total"] == 5
    assert shell.json("jobs", "list", "--flow", flow, "--state", "waiting")["total"] == 4


# --- changing -----------------------------------------------------------------------------------------------


def test_cancel_ends_a_flow_that_is_named_without_asking(shell: Shell) -> None:
    flow = start(shell)
    assert shell("flows", "cancel", flow).stdout == "cancelled 1 flow\n"
    assert set(states(shell, flow).values()) == {"cancelled"}
    again = shell("flows", "cancel", flow)
    assert again.exit_code == 1
    assert f"{flow}: it has ended: cancelled" in again.stderr


def test_cancel_asks_running_steps_and_force_cuts_them_off(shell: Shell) -> None:
    flow = start(shell, a="")
    shell.claim()
    shell("flows", "cancel", flow)
    assert states(shell, flow) == {"a": "running"}
    shell("flows", "cancel", flow, "--force")
    assert states(shell, flow) == {"a": "cancelled"}


def test_retry_goes_on_from_the_failed_step(shell: Shell) -> None:
    flow = start(shell, a="", b="a", c="b")
    shell.finish(Succeeded(1))
    shell.finish(Failed("no"))
    assert shell.json("flows", "retry", flow) == {"action": "retry", "dry_run": False, "flows": 1, "unchanged": {}}
    assert states(shell, flow) == {"a": "succeeded", "b": "queued", "c": "waiting"}
    assert "no step of it failed or was cancelled" in shell("flows", "retry", flow).stderr


def test_restart_runs_a_flow_that_has_ended_from_its_first_step(shell: Shell) -> None:
    flow = start(shell, a="", b="a")
    assert "has not ended: cancel it first" in shell("flows", "restart", flow).stderr
    shell.finish(Succeeded(1))
    shell.finish(Succeeded(2))
    assert shell("flows", "restart", flow).stdout == "restarted 1 flow\n"
    assert states(shell, flow) == {"a": "queued", "b": "waiting"}


def test_many_flows_are_changed_only_if_somebody_says_yes(shell: Shell) -> None:
    flows = [start(shell, a="") for _ in range(3)]
    asked = shell("flows", "cancel", "--state", "running")
    assert asked.exit_code == 2
    assert "this would cancel 3 flows and there is nobody to ask: say --yes" in asked.stderr
    assert shell("flows", "cancel", "--all", "--dry-run").stdout == (
        "would cancel 3 flows (dry run: nothing was changed)\n"
    )
    assert states(shell, flows[0]) == {"a": "queued"}
    assert shell("flows", "cancel", "--state", "running", "--yes").stdout == "cancelled 3 flows\n"
    assert shell("flows", "cancel", "--all").stdout == "no flow to cancel matches\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("cancel",), "name the flows to cancel by id or by --state, or say --all"),
        (("restart", "--all"), "say which: restart --all --state failed"),
        (("cancel", "x"), "is no flow id"),
    ],
    ids=str,
)
def test_what_makes_no_sense_is_refused(shell: Shell, words: tuple[str, ...], said: str) -> None:
    done = shell("flows", *words)
    assert done.exit_code == 2
    assert said in done.output


def test_named_flows_that_cannot_be_changed_are_named_with_the_reason(shell: Shell) -> None:
    here, gone = start(shell, a=""), new_id()
    done = shell.json("flows", "cancel", here, gone, code=1)
    assert (done["flows"], done["unchanged"]) == (1, {str(gone): "there is no such flow"})
    assert "it is cancelled, not failed" in shell("flows", "retry", here, "--state", "failed").stderr


def test_a_shell_completes_ids_of_flows(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    flow = start(shell)
    monkeypatch.setenv("DIBS_URL", shell.url)
    completer = ShellComplete(cli, {}, "dibs", "_DIBS_COMPLETE")
    for words in (["flows", "show"], ["flows", "retry"], ["jobs", "list", "--flow"]):
        assert [item.value for item in completer.get_completions(words, str(flow)[:6])] == [str(flow)]


# --- the drawing --------------------------------------------------------------------------------------------


def drawn(later: tuple[str, ...] = (), /, **needs: str) -> list[str]:
    """The drawing of steps with these needs; ``later`` are those that were added when the others were there."""
    now = system_clock()
    jobs = [
        Job(
            id=new_id(),
            queue="mail",
            task="send",
            args={},
            state=State.WAITING,
            priority=0,
            run_at=now,
            created_at=now + timedelta(seconds=name in later),
            attempts=0,
            max_attempts=1,
            epoch=0,
            step=name,
            needs=tuple(some.split()),
        )
        for name, some in needs.items()
    ]
    return [f"{line.head}{line.job.step} {' '.join(line.more)}".rstrip() for line in draw(jobs)]


def test_a_chain_goes_straight_down_and_beginnings_stand_on_the_left() -> None:
    assert drawn(a="", b="a", c="b", x="", y="x") == ["a", "↓ b", "↓ c", "x", "↓ y"]


def test_a_fork_has_branches_and_a_join_stands_below_the_last_that_it_needs() -> None:
    assert drawn(**DIAMOND) == ["fetch", "├─ left", "└─ right", "   ↓ total left", "   ↓ report"]


def test_a_step_whose_need_is_gone_is_still_drawn() -> None:
    assert drawn(b="a", c="b") == ["b a", "↓ c"]


def test_a_step_is_not_drawn_below_another_that_has_the_name_of_its_need() -> None:
    assert drawn(("a",), b="a", c="b", a="c", x="") == ["b a", "↓ c", "↓ a", "x"]
    assert drawn(("a", "y"), b="a", a="", y="a") == ["b a", "a", "↓ y"]


def test_a_circle_does_not_hang_the_drawing() -> None:
    """Steps that need each other by name, with times that do not tell them apart: all the same each is drawn once."""
    assert drawn(a="c", b="a", c="b", x="c") == ["b a", "↓ c", "├─ a", "└─ x"]


def test_steps_may_come_in_any_order() -> None:
    assert drawn(c="b", b="a", a="") == ["a", "↓ b", "↓ c"]


def test_very_deep_forks_do_not_run_out_of_the_window() -> None:
    needs = {"s0": ""}
    for n in range(1, 40):
        needs |= {f"s{n}": f"s{n - 1}", f"x{n}": f"s{n - 1}"}
    assert max(len(line) for line in drawn(**needs)) < 40
    assert len(drawn(**needs)) == 79
