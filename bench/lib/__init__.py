"""The parts of the store benchmark; ``bench/stores.py`` is the program. Others use its limits."""
