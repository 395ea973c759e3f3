"""The worker's logger. Never arguments at info level, never an address with its password."""

import logging

log = logging.getLogger("dibs.worker")
