"""The guide for authors of stores is run as it stands."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "writing-a-store.md"
SOURCES = Path(__file__).parents[2] / "src"


def written_out(folder: Path) -> None:
    """The files of the guide: each Python block is headed by its name."""
    for block in re.findall(r"```python\n(.*?)```", GUIDE.read_text(), re.DOTALL):
        name = block.partition("\n")[0].removeprefix("# ")
        (folder / name).write_text(block)


def contract(folder: Path, *arguments: str, expected: int = 0) -> str:
    """Run the suite as the author of a store would, in a folder of their own."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(folder), str(SOURCES)])}
    environment |= {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
    command += ["-p", "pytest_asyncio.plugin", "-p", "dibs.testing.plugin", *arguments]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == expected, done.stdout + done.stderr
    return done.stdout + done.stderr


def test_the_lab_of_the_guide_passes_the_contract(tmp_path: Path) -> None:
    written_out(tmp_path)
    (tmp_path / "conftest.py").unlink()
    said = contract(tmp_path, "--pyargs", "dibs.testing.contract.test_lease", "--dibs-lab", "shelf:ShelfLab")
    assert "passed" in said
    assert "skipped" not in said


@pytest.mark.parametrize("choice", [[], ["--dibs-lab", "shelf"]], ids=["all", "one"])
def test_the_conftest_of_the_guide_offers_the_lab_to_tests_of_ones_own(tmp_path: Path, choice: list[str]) -> None:
    written_out(tmp_path)
    (tmp_path / "test_mine.py").write_text(
        "import pytest\n\n\n"
        "@pytest.mark.asyncio\n"
        "async def test_mine(store, lab):\n"
        "    assert type(store).__name__ == 'ShelfStore'\n"
    )
    assert "1 passed" in contract(tmp_path, "test_mine.py", *choice)


def test_a_fixture_called_lab_that_is_not_ours_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(
        "import pytest\n\n\n"
        "@pytest.fixture\n"
        "def lab():\n"
        "    return 'mine'\n\n\n"
        "def test_mine(lab):\n"
        "    assert lab == 'mine'\n"
    )
    assert "1 passed" in contract(tmp_path, "test_mine.py")


def test_the_suite_without_a_lab_is_an_error_and_not_a_success(tmp_path: Path) -> None:
    said = contract(tmp_path, "--pyargs", "dibs.testing.contract.test_lease", expected=2)
    assert "no store to test: name a lab with --dibs-lab" in said
