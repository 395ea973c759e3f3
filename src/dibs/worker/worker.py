"""The worker: claim → run → judge → settle, until told to stop."""

import asyncio
import os
import socket
import threading
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

from dibs.clock import system_clock
from dibs.errors import ConfigurationError, StoreUnavailable
from dibs.job import Retention
from dibs.outcome import Failed, Outcome, Released, Retry, Snoozed, Succeeded, Verdict
from dibs.store import Store
from dibs.task import Tasks
from dibs.worker.claiming import Claimer
from dibs.worker.heartbeat import Heartbeat
from dibs.worker.hooks import Hooks
from dibs.worker.log import log
from dibs.worker.lookout import Lookout
from dibs.worker.maintenance import Maintenance
from dibs.worker.outage import Backoff, Weather
from dibs.worker.plan import Callers, Plan
from dibs.worker.prefetch import Prefetch
from dibs.worker.processes import ProcessPool
from dibs.worker.run import Run, Why
from dibs.worker.running import Runner
from dibs.worker.settings import Settings, default_name
from dibs.worker.settling import Ended, Settler
from dibs.worker.stats import Stats
from dibs.worker.threads import Threads

PATIENCE = 5.0
"""Seconds that interrupted handlers, last outcomes and hooks get when the worker ends."""
HASTE = 1.0
"""The same when it has to end now."""
