"""``python -m dibs``: the command line."""

from dibs.cli import main

if __name__ == "__main__":
    main()
