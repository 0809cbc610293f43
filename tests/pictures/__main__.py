"""`python -m tests.pictures readme` makes docs/pictures; `... matrix DIRECTORY` every size."""

from __future__ import annotations

import argparse
import asyncio
import os
import tempfile
from pathlib import Path

from tests.pictures import matrix, readme


def main() -> None:
    """Make what is asked for."""
    parser = argparse.ArgumentParser(prog="python -m tests.pictures")
    commands = parser.add_subparsers(dest="command", required=True)
    of_readme = commands.add_parser("readme", help="the pictures of the README")
    of_readme.add_argument("directory", type=Path)
    of_matrix = commands.add_parser("matrix", help="every size, theme, colour depth and fabric")
    of_matrix.add_argument("directory", type=Path)
    of_matrix.add_argument("--only", default="", help="those whose name contains this")
    args = parser.parse_args()
    args.directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as state:
        os.environ["XDG_STATE_HOME"] = state
        if args.command == "readme":
            asyncio.run(readme.make(args.directory))
            for path in sorted(args.directory.iterdir()):
                print(f"{path.stat().st_size / 1000:7.1f} kB  {path}")
        else:
            asyncio.run(matrix.make(args.directory, args.only))


main()
