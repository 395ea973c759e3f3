"""The pytest plugin, in a project of somebody else's."""

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

SOURCES = Path(__file__).parents[2] / "src"

TASKS = """
    from dibs import App

    app = App("postgresql://nobody@127.0.0.1:1/nowhere")
    outbox = []

    @app.task
    def send_mail(to: str) -> str:
        outbox.append(to)
        return to.upper()
"""


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A folder with tasks and pytest settings, as a user would have it."""
    monkeypatch.setenv("PYTHONPATH", str(SOURCES))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # as if only this plugin were installed
    pytester.makepyfile(tasks=TASKS)
    settings(pytester, "dibs_app = tasks:app")
    return pytester


def settings(project: pytest.Pytester, *lines: str) -> None:
    project.makeini("\n".join(["[pytest]", "pythonpath = .", "filterwarnings = error", *lines]))


def run(project: pytest.Pytester, *plugins: str) -> pytest.RunResult:
    named = [argument for plugin in ("dibs.testing.plugin", *plugins) for argument in ("-p", plugin)]
    return project.runpytest_subprocess("-p", "no:cacheprovider", *named)


PLAIN = """
    from tasks import app, outbox, send_mail

    def test_one(dibs_harness):
        app.sync(send_mail.enqueue("ada"))
        dibs_harness.assert_enqueued(send_mail, to="ada", times=1)
        dibs_harness.sync(dibs_harness.drain())
        assert outbox == ["ada"]

    def test_another_starts_empty(dibs_harness):
        dibs_harness.assert_not_enqueued()
        assert dibs_harness.jobs() == []
"""


def test_the_fixture_puts_the_named_app_in_memory_for_one_test(project: pytest.Pytester) -> None:
    project.makepyfile(PLAIN)
    run(project).assert_outcomes(passed=2)


def test_it_works_in_parallel(project: pytest.Pytester) -> None:
    project.makepyfile(PLAIN)
    result = project.runpytest_subprocess(
        "-p", "no:cacheprovider", "-p", "xdist", "-n", "2", "-p", "dibs.testing.plugin"
    )
    result.assert_outcomes(passed=2)


ASYNC = """
    import pytest
    from tasks import outbox, send_mail

    @pytest.mark.MARK
    async def test_async(dibs_harness):
        handle = await send_mail.enqueue("ada")
        await dibs_harness.drain()
        assert await handle.result(0) == "ADA"

    @pytest.mark.MARK
    async def test_another(dibs_harness):
        await send_mail.options(delay=60).enqueue("ada")
        assert (await dibs_harness.drain()).succeeded == 0
        dibs_harness.advance(60)
        assert (await dibs_harness.drain()).succeeded == 1
"""


def test_it_works_with_pytest_asyncio(project: pytest.Pytester) -> None:
    settings(project, "dibs_app = tasks:app", "asyncio_default_fixture_loop_scope = function")
    project.makepyfile(ASYNC.replace("MARK", "asyncio"))
    run(project, "pytest_asyncio.plugin").assert_outcomes(passed=2)


def test_it_works_with_anyio(project: pytest.Pytester) -> None:
    project.makepyfile(ASYNC.replace("MARK", "anyio"))
    project.makeconftest("import pytest\n\n@pytest.fixture\ndef anyio_backend():\n    return 'asyncio'\n")
    run(project, "anyio").assert_outcomes(passed=2)


def test_a_failed_test_shows_the_test_and_the_handler_and_nothing_between(project: pytest.Pytester) -> None:
    project.makepyfile(
        """
        from tasks import app, send_mail

        @app.task
        def broken():
            raise ValueError("no such thing")

        def test_drain(dibs_harness):
            app.sync(broken.enqueue())
            dibs_harness.sync(dibs_harness.drain())

        def test_assertion(dibs_harness):
            dibs_harness.assert_enqueued(send_mail, to="ada")
        """
    )
    result = run(project)
    result.assert_outcomes(failed=2)
    result.stdout.fnmatch_lines(
        [
            ">*dibs_harness.sync(dibs_harness.drain())",
            '>*raise ValueError("no such thing")',
            "E*ValueError: no such thing",
            "E*attempt 1 of job * (broken); with raising=False it is kept*",
            '>*dibs_harness.assert_enqueued(send_mail, to=["]ada["])',
            "E*a job of send_mail with to='ada' was expected, but nothing was enqueued",
        ]
    )
    result.stdout.no_fnmatch_line("*harness.py*")
    result.stdout.no_fnmatch_line("*running.py*")


def test_an_app_made_by_a_function_comes_from_a_fixture_of_the_same_name(project: pytest.Pytester) -> None:
    settings(project)
    project.makeconftest(
        "import pytest\n\n@pytest.fixture\ndef dibs_app():\n    from tasks import app\n    return app\n"
    )
    project.makepyfile(PLAIN)
    run(project).assert_outcomes(passed=2)


@pytest.mark.parametrize(
    ("named", "said"),
    [
        ("", "dibs does not know your app: write dibs_app = yourproject.tasks:app into the pytest settings"),
        ("dibs_app = tasks", "into the pytest settings, not 'tasks'"),
        ("dibs_app = nowhere.tasks:app", "dibs_app: there is no module nowhere; is it installed"),
        ("dibs_app = tasks:application", "dibs_app = tasks:application: there is no App of that name in tasks"),
    ],
)
def test_a_wrong_setting_is_one_line_that_says_what_to_do(project: pytest.Pytester, named: str, said: str) -> None:
    settings(project, named)
    project.makepyfile("def test_it(dibs_harness): ...")
    result = run(project)
    result.assert_outcomes(errors=1)
    assert said in result.stdout.str()
    assert "Traceback" not in result.stdout.str()


def test_an_import_that_fails_inside_the_users_module_is_shown_as_it_is(project: pytest.Pytester) -> None:
    project.makepyfile(tasks="import not_installed_here")
    project.makepyfile("def test_it(dibs_harness): ...")
    result = run(project)
    result.assert_outcomes(errors=1)
    result.stdout.fnmatch_lines(["*ModuleNotFoundError: No module named 'not_installed_here'"])


def test_who_does_not_ask_for_it_is_left_alone(project: pytest.Pytester) -> None:
    project.makepyfile(tasks="raise RuntimeError('imported')")
    project.makepyfile(
        """
        import sys

        def test_mine():
            heavy = {"hypothesis", "apsw", "asyncpg", "redis", "rich", "click", "tasks"}
            assert not heavy & set(sys.modules)
        """
    )
    run(project).assert_outcomes(passed=1)
