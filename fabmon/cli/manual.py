"""The manual pages, from the help of the commands: `python -m fabmon.cli.manual DIR`."""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from fabmon import __version__
from fabmon.cli.main import Commands, cli

_SECTION = re.compile(r"^(\S.*):$")
_EXAMPLES = {
    "fabmon": ("fabmon --hosts hosts.txt", "fabmon --host gpu[001-128] --once"),
    "agent": ("fabmon agent",),
    "compare": ("fabmon compare before.fabrec after.fabrec",),
    "completion": ("fabmon completion bash",),
    "config": ("fabmon config", "fabmon config --init"),
    "cut": ("fabmon cut run.fabrec --from -10m -o end.fabrec",),
    "demo": ("fabmon demo", "fabmon demo --topology fat-tree --speed 10"),
    "doctor": ("fabmon doctor --hosts hosts.txt",),
    "explain": ("fabmon explain job.log --hosts hosts.txt",),
    "export": ("fabmon export run.fabrec --format csv -o run.csv",),
    "flows": ("fabmon flows --hosts hosts.txt", "fabmon flows --hosts hosts.txt --sflow :6343"),
    "fluctuate": ("fabmon fluctuate week.fabrec",),
    "info": ("fabmon info run.fabrec",),
    "mcp": ("fabmon mcp run.fabrec",),
    "need": ("fabmon need --params 70e9 --dp 64 --tp 8 --compute 4s",),
    "query": ("fabmon query findings run.fabrec",),
    "ras": ("fabmon ras --host gpu001 --nccl-version 2.29.3",),
    "record": ("fabmon record --hosts hosts.txt -o pod7.fabrec --rotate 1h --keep 7d",),
    "replay": ("fabmon replay run.fabrec", "fabmon replay run.fabrec --at 14:03 --once"),
    "report": ("fabmon report run.fabrec -o run.html",),
    "trace": ("fabmon trace gpu001 gpu002 --hosts hosts.txt",),
    "verify": ("fabmon verify run.fabrec",),
    "watch": ("fabmon watch --hosts hosts.txt",),
}
"""Command lines of each page; a test reads their options with the command's own parser."""

_FILES = (
    ("~/.config/fabmon/fabmon.toml", "configuration; fabmon config shows every setting"),
    ("~/.ssh/config, ~/.ssh/known_hosts", "how nodes are reached; host keys are always checked"),
    ("$XDG_RUNTIME_DIR/fabmon", "what a screen records, and the socket of fabmon watch"),
    ("~/.local/state/fabmon/errors.log", "tracebacks of unexpected errors"),
)
_ENVIRONMENT = (
    ("XDG_CONFIG_HOME, XDG_STATE_HOME, XDG_RUNTIME_DIR", "other places of the files above"),
    ("SSH_AUTH_SOCK", "the agent whose keys are offered"),
    ("NO_COLOR, COLORTERM, TERM", "colours of the screen, without --color"),
    ("KUBECONFIG", "as kubectl reads it"),
)
_TERM = re.compile(r"^ {2}(\S.*?)(?: {2,}(.*))?$")


def manual_pages() -> Iterator[tuple[str, str]]:
    """Name and troff text of each page: `fabmon.1`, and one of each command."""
    root = click.Context(cli, info_name="fabmon")
    yield "fabmon.1", _page(root)
    assert isinstance(cli, Commands)
    for name in cli.list_commands(root):
        command = cli.get_command(root, name)
        assert command is not None
        context = click.Context(command, info_name=name, parent=root)
        yield f"fabmon-{name}.1", _page(context)


def _page(context: click.Context) -> str:
    """A page in the man macros (groff_man(7)) of what `--help` prints."""
    command, path = context.command, context.command_path
    name = path.replace(" ", "-")
    summary = command.get_short_help_str(limit=200).rstrip(".")
    usage = " ".join(command.collect_usage_pieces(context))
    lines = [
        f'.TH {_quoted(name.upper())} 1 "" {_quoted(f"fabmon {__version__}")} "fabmon manual"',
        ".SH NAME",
        f"{_text(name)} \\- {_text(summary[:1].lower() + summary[1:])}",
        ".SH SYNOPSIS",
        f".B {_text(path)}",
        _text(usage),
        ".SH DESCRIPTION",
        *_paragraphs(command.help or ""),
    ]
    records = [each.get_help_record(context) for each in command.params]
    options = [record for record in records if record is not None and record[1]]
    if options:
        lines.append(".SH OPTIONS")
        for term, text in options:
            lines += [".TP", f".B {_text(term)}", _text(text)]
    if isinstance(command, Commands):
        lines.append(".SH COMMANDS")
        for each in command.list_commands(context):
            found = command.get_command(context, each)
            assert found is not None
            lines += [".TP", f".BR fabmon-{_text(each)} (1)", _text(found.get_short_help_str(200))]
    lines += [".SH EXAMPLES", ".nf", *map(_text, _EXAMPLES[context.info_name or "fabmon"]), ".fi"]
    for title, rows in (("FILES", _FILES), ("ENVIRONMENT", _ENVIRONMENT)):
        lines.append(f".SH {title}")
        for term, text in rows:
            lines += [".TP", f".B {_text(term)}", _text(text)]
    # The statuses are the same in every command.
    lines += _sections(cli.epilog or "")
    return "\n".join(lines) + "\n"


def _paragraphs(text: str) -> Iterator[str]:
    """Paragraphs; those after a backspace character keep their lines, as in click's help."""
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        if paragraph.startswith("\b"):
            kept = [_text(line) for line in paragraph.splitlines()[1:]]
            yield from [".PP", ".nf", *kept, ".fi"]
        else:
            yield from [".PP", _text(" ".join(paragraph.split()))]


def _sections(epilog: str) -> Iterator[str]:
    """Sections of `title:` with indented lines of a term and its meaning."""
    for line in epilog.replace("\b", "").splitlines():
        title, term = _SECTION.match(line), _TERM.match(line)
        if title is not None:
            yield f".SH {_text(title[1].upper())}"
        elif term is not None:
            yield from [".TP", f".B {_text(term[1])}", _text(term[2] or "")]


def _text(text: str) -> str:
    """Text without anything that troff takes for a request or an escape."""
    text = text.replace("\\", "\\e").replace("-", "\\-").replace("'", "\\(aq")
    text = text.replace("`", "\\(ga").replace("~", "\\(ti").replace("^", "\\(ha")
    return f"\\&{text}" if text.startswith(".") else text


def _quoted(text: str) -> str:
    return '"' + _text(text).replace('"', "\\(dq") + '"'


def main() -> None:
    """Write all pages into the directory that the command line names."""
    home = Path(sys.argv[1])
    home.mkdir(parents=True, exist_ok=True)
    for name, text in manual_pages():
        (home / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
