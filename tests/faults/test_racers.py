"""The tools of the races: racers never outlive the one who started them."""

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


def test_racers_end_when_the_one_who_started_them_is_killed(tmp_path: Path) -> None:
    orders = ",".join(f'{{"name": "p{n}", "url": "memory://", "folder": "{tmp_path}"}}' for n in range(2))
    starter = subprocess.Popen(
        [sys.executable, "-c", STARTER, f"[{orders}]"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert starter.stdout is not None
    said = [starter.stdout.readline() for _ in range(3)]
    assert said.count(b"ready\n") == 2
    starter.kill()
    # The racers hold the other end of this pipe: their end is the end of the file.
    assert starter.stdout.read() == b""
    starter.communicate()
