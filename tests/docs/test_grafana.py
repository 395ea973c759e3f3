"""The Grafana dashboard is true: every metric and label that it names exists, and none is left out of it."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from dibs.telemetry.metrics import STORE_METRICS, WORKER_METRICS
from docs.build import ROOT

DASHBOARD = json.loads((ROOT / "docs/grafana/dibs.json").read_text())
METRICS = {**WORKER_METRICS, **STORE_METRICS}
SUFFIXES = {"counter": ("_total",), "gauge": ("",), "histogram": ("_bucket", "_sum", "_count")}
SERIES = {name + suffix for name, (kind, _) in METRICS.items() for suffix in SUFFIXES[kind]}
LABELS = {"queue", "task", "outcome", "state", "le", "version", "instance"}


def _panels() -> Iterator[dict[str, Any]]:
    for panel in DASHBOARD["panels"]:
        yield panel
        yield from panel.get("panels", ())


QUERIES = [
    pytest.param(target["expr"], id=f"{panel['title']}-{target['refId']}")
    for panel in _panels()
    for target in panel.get("targets", ())
]


@pytest.mark.parametrize("query", QUERIES)
def test_every_metric_and_label_of_a_query_exists(query: str) -> None:
    named = set(re.findall(r"\bdibs_\w+", query))
    assert named
    assert named <= SERIES
    grouped = {label.strip() for by in re.findall(r"by \((.*?)\)", query) for label in by.split(",")}
    matched = set(re.findall(r"(\w+)=~?\"", query))
    assert grouped | matched <= LABELS
    assert query.count("(") == query.count(")")


def test_the_dashboard_shows_every_metric() -> None:
    shown = {name for query in QUERIES for name in re.findall(r"\bdibs_\w+", str(query.values[0]))}
    for name, (kind, _) in METRICS.items():
        assert any(name + suffix in shown for suffix in SUFFIXES[kind]), name


def test_variables_ask_for_labels_that_exist_and_panels_do_not_overlap() -> None:
    for variable in DASHBOARD["templating"]["list"]:
        if variable["type"] == "query":
            [(metric, label)] = re.findall(r"label_values\((\w+), (\w+)\)", variable["definition"])
            assert metric in SERIES
            assert label in LABELS
    taken: set[tuple[int, int]] = set()
    for panel in _panels():
        at = panel["gridPos"]
        cells = {(x, y) for x in range(at["x"], at["x"] + at["w"]) for y in range(at["y"], at["y"] + at["h"])}
        assert not cells & taken, panel["title"]
        taken |= cells
    ids = [panel["id"] for panel in _panels()]
    assert len(ids) == len(set(ids))


def test_every_metric_is_in_the_guide() -> None:
    guide = (ROOT / "docs/guides/observing.md").read_text()
    for name, (kind, _) in METRICS.items():
        assert f"`{name}{'_total' if kind == 'counter' else ''}`" in guide, name
