"""One file for each system, run in an environment of its own, where dibs is not installed."""
