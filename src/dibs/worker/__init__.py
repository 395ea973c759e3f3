"""The worker: claims jobs, runs their handlers, records how they ended."""

from dibs.worker.stats import Stats
from dibs.worker.until_signal import collect_less_often, run_process, run_with_signals
from dibs.worker.worker import Worker

__all__ = ["Stats", "Worker", "collect_less_often", "run_process", "run_with_signals"]
