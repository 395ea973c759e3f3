"""The parts of the store benchmark; ``bench/stores.py`` is the program. The limits of the stores are used by others too."""
