"""Every command of fabmon in a code block of the documentation: its options exist, and it runs.

Each command line is parsed by the real command. Those that need neither a fabric nor a file of the
reader's are run; recordings are those of a released version.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from fabmon.cli.main import Commands, cli
from tests.unit.test_docs import PAGES, ROOT

RECORDING = ROOT / "tests" / "fixtures" / "releases" / "0.1.0" / "demo.fabrec"
_BLOCK = re.compile(r"^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)
_PROMPT = re.compile(r"^\s*(?:[$#] )?(?:sudo (?:-u \w+ )?)?(?=fabmon\b)")
_OPERATORS = {";", "|", "||", "&", "&&", ">", ">>", "<", "2>", "..."}
_RUN = {"need", "config", "info", "verify", "completion", "fluctuate", "export", "cut"}
_RECORDED_TIMES = {"--from", "--to", "--at"}


def documented() -> Iterator[tuple[str, list[str]]]:
    """Page and line, and the arguments, of each command in a code block."""
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for block in _BLOCK.finditer(text):
            number = text.count("\n", 0, block.start(1)) + 1
            joined = block[1].replace("\\\n", " ")
            for line in joined.splitlines():
                if _PROMPT.match(line):
                    for arguments in commands(_PROMPT.sub("", line)):
                        yield f"{page.relative_to(ROOT)}:{number}", arguments


def commands(line: str) -> Iterator[list[str]]:
    """The arguments of each fabmon in a line of a shell; comments are left out."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=";|&<>")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in [*lexer, ";"]:
        if word in _OPERATORS:
            if words and words[0] == "fabmon":
                yield words[1:]
            words = []
        else:
            words.append(word)


COMMANDS = list(dict.fromkeys((where, tuple(words)) for where, words in documented()))


def parsed(arguments: tuple[str, ...]) -> None:
    """Parse as the program does. Raises click.UsageError and others for a mistake."""
    group = Commands()
    root = click.Context(cli, info_name="fabmon")
    if arguments and arguments[0] in group.list_commands(root):
        command = group.get_command(root, arguments[0])
        assert command is not None
        command.make_context(arguments[0], list(arguments[1:]), parent=root)
    else:
        cli.make_context("fabmon", list(arguments))


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory with the files that the documentation names."""
    monkeypatch.chdir(tmp_path)
    for name in ("pod7.fabrec", "run.fabrec", "before.fabrec", "after.fabrec", "incident.fabrec"):
        shutil.copy(RECORDING, name)
    Path("hosts.txt").write_text("gpu[001-128]\n")
    return tmp_path


def test_the_documentation_has_commands() -> None:
    assert len(COMMANDS) > 60
    named = {words[0] for _, words in COMMANDS if words and not words[0].startswith("-")}
    by_programs = {"mcp"}  # in the JSON of an assistant's settings
    assert named | by_programs == set(Commands().list_commands(click.Context(cli)))


@pytest.mark.parametrize(("where", "arguments"), COMMANDS, ids=lambda each: str(each)[:60])
def test_its_options_exist(where: str, arguments: tuple[str, ...], files: Path) -> None:
    if "--help" not in arguments:
        parsed(arguments)


RUN = [
    (where, words)
    for where, words in COMMANDS
    if words and words[0] in _RUN and not _RECORDED_TIMES & set(words)
]


@pytest.mark.parametrize(("where", "arguments"), RUN, ids=lambda each: str(each)[:60])
def test_it_runs_without_a_fabric(where: str, arguments: tuple[str, ...], files: Path) -> None:
    done = CliRunner().invoke(cli, list(arguments))
    assert done.exit_code == 0, done.output


def test_a_wrong_option_would_be_noticed() -> None:
    with pytest.raises(click.NoSuchOption):
        parsed(("doctor", "--hosts", "hosts.txt", "--fromat", "json"))
    (arguments,) = commands("fabmon --host 'gpu[001-004]' --once  # a table")
    assert arguments == ["--host", "gpu[001-004]", "--once"]
    assert len(list(commands("fabmon info a.fabrec; fabmon verify a.fabrec | head > x"))) == 2
