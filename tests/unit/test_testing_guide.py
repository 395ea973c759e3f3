"""The guide for testing is run as it stands, as the project that it describes."""

import os
import re
import subprocess
import sys
from pathlib import Path

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "testing.md"
SOURCES = Path(__file__).parents[2] / "src"


def written_out(folder: Path) -> int:
    """The files of the guide, each Python block headed by its name; answers how many tests are in them."""
    text = GUIDE.read_text()
    [settings] = re.findall(r"```ini\n(.*?)```", text, re.DOTALL)
    (folder / "pytest.ini").write_text(settings + "filterwarnings = error\n")
    tests = 0
    for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        name = block.partition("\n")[0].removeprefix("# ")
        (folder / name).write_text(block)
        tests += block.count("def test_")
    return tests


def test_the_project_of_the_guide_passes_its_tests(tmp_path: Path) -> None:
    tests = written_out(tmp_path)
    environment = {**os.environ, "PYTHONPATH": str(SOURCES), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += ["-p", "pytest_asyncio.plugin", "-o", "asyncio_default_fixture_loop_scope=function"]
    command += ["-p", "dibs.testing.plugin"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{tests} passed" in done.stdout


def test_the_message_that_the_guide_shows_is_the_one_that_comes(tmp_path: Path) -> None:
    written_out(tmp_path)
    [shown] = re.findall(r"```text\n(a job of .*?)```", GUIDE.read_text(), re.DOTALL)
    (tmp_path / "show.py").write_text(
        "import asyncio\n"
        "from dibs.testing import use_memory\n"
        "from tasks import app, send_mail, sign_up\n"
        "with use_memory(app) as jobs:\n"
        "    asyncio.run(sign_up('bob@example.org'))\n"
        "    try:\n"
        "        jobs.assert_enqueued(send_mail, to='ada@example.org', queue='mail')\n"
        "    except AssertionError as failure:\n"
        "        print(failure)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(SOURCES)}
    command = [sys.executable, "show.py"]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == shown, done.stderr
