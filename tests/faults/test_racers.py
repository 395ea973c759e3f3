"""The tools of the races: a racer never outlives the one who started it."""

import subprocess
import sys
from pathlib import Path

STARTER = """
import subprocess, sys
racer = subprocess.Popen([sys.executable, "-m", "dibs.testing.racer"], stdin=subprocess.PIPE)
racer.stdin.write(sys.argv[1].encode() + b"\\n")
racer.stdin.flush()
sys.stdin.read()
"""


def test_a_racer_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    orders = f'{{"name": "p", "url": "memory://", "folder": "{tmp_path}"}}'
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER, orders],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert starter.stdout is not None
    assert starter.stdout.readline() == b"ready\n"
    starter.kill()
    # The racer holds the other end of this pipe: its end is the end of the file.
    assert starter.stdout.read() == b""
    starter.communicate()
