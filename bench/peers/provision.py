"""Environments: one for each peer, made once under ``.bench`` and kept."""

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import msgspec

from bench.peers.table import Peer

ROOT = Path(__file__).parents[2]
CACHE = ROOT / ".bench"


class MissingError(Exception):
    """A peer that cannot take part here, and why."""


class Home(msgspec.Struct, frozen=True):
    """Where a system runs: how its scripts are started, and what is installed."""

    command: tuple[str, ...]
    variables: dict[str, str]
    versions: dict[str, str]


def provision(peer: Peer, say: Callable[[str], None]) -> Home:
    """The environment of a peer, made now if it is not there yet."""
    if not peer.packages:
        return own_home()
    return _node(peer, say) if peer.node else _python(peer, say)


def own_home() -> Home:
    """The interpreter that runs the benchmark, with dibs as it stands in this tree."""
    return python_home(Path(sys.executable), ROOT / "src")


def python_home(python: Path, *paths: Path) -> Home:
    """An interpreter that finds the scripts of this tree, and the given folders."""
    variables = {
        "PYTHONPATH": ":".join(map(str, (ROOT, *paths))),
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONWARNINGS": "ignore",
        "PATH": str(python.parent),
    }
    return Home((str(python), "-m", "bench.peers.scripts"), variables, _installed(python))


def _python(peer: Peer, say: Callable[[str], None]) -> Home:
    folder = CACHE / peer.environment
    python, stamp = folder / "bin" / "python", folder / "requirements.json"
    wanted = json.dumps([sys.version, *peer.packages])
    if not stamp.exists() or stamp.read_text() != wanted:
        say(f"{peer.environment}: installing {', '.join(peer.packages)}")
        shutil.rmtree(folder, ignore_errors=True)
        _run([sys.executable, "-m", "venv", str(folder)])
        _run([str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check", *peer.packages])
        stamp.write_text(wanted)
    return python_home(python)


def _node(peer: Peer, say: Callable[[str], None]) -> Home:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        raise MissingError("node and npm are not installed here")
    folder = CACHE / "node"
    names = [package.rpartition("@")[0] for package in peer.packages]
    manifests = {name: folder / "node_modules" / name / "package.json" for name in names}
    if not all(manifest.exists() for manifest in manifests.values()):
        say(f"{peer.name}: installing {', '.join(peer.packages)}")
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / "package.json").exists():
            (folder / "package.json").write_text('{"private": true}')
        _run([npm, "install", "--no-audit", "--no-fund", "--silent", *peer.packages], folder)
    variables = {"NODE_ENV": "production", "BENCH_NODE": str(folder), "PATH": str(Path(node).parent)}
    versions = {name: json.loads(manifest.read_text())["version"] for name, manifest in manifests.items()}
    return Home((node, str(ROOT / "bench/peers/scripts" / peer.script)), variables, versions)


def _installed(python: Path) -> dict[str, str]:
    listed = json.loads(_output([str(python), "-m", "pip", "list", "--format=json", "--disable-pip-version-check"]))
    return {package["name"].lower(): package["version"] for package in listed}


def _run(command: Sequence[str], folder: Path | None = None) -> None:
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        said = [line.strip() for line in (done.stderr or done.stdout).splitlines() if line.strip()]
        problems = [line for line in said if "error" in line.lower()] or said or ["without a word"]
        raise MissingError(f"{Path(command[0]).name} failed: {problems[0]}")


def _output(command: Sequence[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
