"""Writes the skeleton of a counter source, a cause or a metric, with a test that passes.

    python -m tests.skeletons source slingshot_nic

`KIND.txt` has the parts. `=== PATH` begins a new file; `=== PATH before LINE` and `=== PATH after
LINE` are lines to insert there. In all of it $name is the name, $dashed with dashes, $Class as that
of a class, $NAME as that of a constant, $words and $Words as words.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path
from string import Template

ROOT = Path(__file__).parents[2]
KINDS = ("source", "cause", "metric")
_PART = re.compile(r"^=== (?P<path>\S+)(?: (?P<where>before|after) (?P<line>.+))?$", re.MULTILINE)


class NotMade(Exception):
    """Nothing was written; the message says why."""


def make(kind: str, name: str, root: Path = ROOT) -> list[Path]:
    """Write all parts, and return their files. Raises NotMade."""
    if kind not in KINDS or not re.fullmatch(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", name):
        raise NotMade(f"{kind} {name!r}: {', '.join(KINDS)}, and a name such as slow_receiver")
    words = name.replace("_", " ")
    text = Template((Path(__file__).parent / f"{kind}.txt").read_text("utf-8")).substitute(
        name=name,
        dashed=name.replace("_", "-"),
        Class="".join(each.capitalize() for each in name.split("_")),
        NAME=name.upper(),
        words=words,
        Words=words.capitalize(),
    )
    parts = list(_PART.finditer(text))
    ends = [part.start() for part in parts[1:]] + [len(text)]
    made: dict[Path, str] = {}
    for part, end in zip(parts, ends, strict=True):
        path, body = root / part["path"], text[part.end() + 1 : end].rstrip("\n") + "\n"
        if part["line"] is None:
            if path.exists():
                raise NotMade(f"{part['path']} exists")
            made[path] = body
        else:
            before = made.get(path) or path.read_text("utf-8")
            made[path] = _inserted(before, body, part)
    for path, content in made.items():
        path.write_text(content, "utf-8")
    return list(made)


def _inserted(content: str, body: str, part: re.Match[str]) -> str:
    """The content of a file with lines before or after one that occurs once. Raises NotMade."""
    lines = content.splitlines(keepends=True)
    places = [number for number, each in enumerate(lines) if each.rstrip("\n") == part["line"]]
    if len(places) != 1:
        raise NotMade(f"{part['path']}: {len(places)} lines are {part['line']!r}, not one")
    place = places[0] + (part["where"] == "after")
    return "".join([*lines[:place], body, *lines[place:]])


def main() -> None:
    """Write what the arguments name, and print its files."""
    try:
        kind, name = sys.argv[1:]
        for path in make(kind, name):
            print(path.relative_to(ROOT))
    except (NotMade, ValueError) as error:
        sys.exit(f"make new-source, new-cause or new-metric NAME=some_name: {error}")


if __name__ == "__main__":
    main()
