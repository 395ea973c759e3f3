"""Metrics in the words of Prometheus. Needs the extra ``dibs[metrics]``."""

from collections.abc import Iterable, Sequence
from typing import Any

from dibs.errors import ConfigurationError
from dibs.telemetry.metrics import Family

FLEET = "DIBS_METRICS"
"""The variable that tells a child of a supervisor where to serve; see ``dibs.telemetry.fleet``."""


def require() -> None:
    """A ConfigurationError if prometheus-client is not installed."""
    try:
        import prometheus_client as _  # noqa: F401 - whether it is there
    except ModuleNotFoundError:
        raise ConfigurationError("metrics need prometheus-client: pip install 'dibs[metrics]'") from None


def registered() -> list[Family]:
    """What the program itself has in Prometheus' registry: the process, the interpreter, metrics of its own."""
    from prometheus_client import REGISTRY

    return [
        Family(
            each.name, each.type, each.documentation, [(one.name, dict(one.labels), one.value) for one in each.samples]
        )
        for each in REGISTRY.collect()
    ]


def exposed(families: Sequence[Family], accept: str = "") -> tuple[str, bytes]:
    """The page and its content type, in the format that the scraper prefers."""
    from prometheus_client import CollectorRegistry
    from prometheus_client.exposition import choose_encoder

    registry = CollectorRegistry()
    registry.register(_Collector(families))
    encode, content_type = choose_encoder(accept)
    return content_type, encode(registry)


class _Collector:
    def __init__(self, families: Sequence[Family]) -> None:
        self._families = families

    def describe(self) -> Iterable[Any]:
        return ()

    def collect(self) -> Iterable[Any]:
        from prometheus_client.core import Metric

        for family in self._families:
            metric = Metric(family.name, family.help, family.kind)
            for name, labels, value in family.samples:
                metric.add_sample(name, labels, value)
            yield metric
