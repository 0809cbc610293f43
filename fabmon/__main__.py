"""`python -m fabmon`: the same as the command `fabmon`."""

from fabmon.cli.main import main

if __name__ == "__main__":
    main()
