"""What goes on, for those who look after it: metrics, traces, health, and the samples behind the charts.

Nothing here imports Prometheus' client, OpenTelemetry or Starlette before it is used.
"""

from dibs.telemetry.asks import ask_to_stop, asked_to_stop
from dibs.telemetry.samples import Depth, Point, Series
from dibs.telemetry.tally import Figures
from dibs.telemetry.traces import OpenTelemetry
from dibs.telemetry.web import metrics_routes

__all__ = [
    "Depth",
    "Figures",
    "OpenTelemetry",
    "Point",
    "Series",
    "ask_to_stop",
    "asked_to_stop",
    "metrics_routes",
]
