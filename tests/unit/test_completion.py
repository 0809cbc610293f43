"""Completion with the tab key, in real shells, and the manual pages, through a real groff."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from fabmon.cli.main import Commands, cli
from fabmon.cli.manual import _EXAMPLES, manual_pages
from tests import requirements

BIN = Path(sys.executable).parent
BASH = """
source <(fabmon completion bash)
COMP_WORDS=({words}) COMP_CWORD={last}
_fabmon_completion fabmon
printf '%s\\n' "${{COMPREPLY[@]}}"
"""
ZSH = """
compdef() {{ : }}
source <(fabmon completion zsh)
_describe() {{ print -rl -- ${{completions_with_descriptions%%:*}} }}
compadd() {{ print -rl -- $completions }}
words=({words}) CURRENT={last}
_fabmon_completion
"""
"""What zsh would complete with is printed: it completes on a terminal only."""
FISH = "fabmon completion fish | source; complete -C '{line}'"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "hosts.txt").write_text("gpu[001-003]\nsw1 role=switch\n")
    (tmp_path / "other.txt").write_text("node[7-8]\n")
    return tmp_path


def run(argv: list[str], home: Path) -> str:
    environment = {**os.environ, "PATH": f"{BIN}:{os.environ['PATH']}", "HOME": str(home)}
    done = subprocess.run(argv, cwd=home, env=environment, capture_output=True, check=True)
    return done.stdout.decode()


def in_bash(line: str, home: Path) -> list[str]:
    last = len(line.split(" ")) - 1
    return run(["bash", "-c", BASH.format(words=line or "''", last=last)], home).split()


def in_zsh(line: str, home: Path) -> list[str]:
    requirements.need_command("zsh", "zsh")
    script = ZSH.format(words=line, last=len(line.split(" ")))
    return run(["zsh", "-fc", script], home).split()


def in_fish(line: str, home: Path) -> list[str]:
    requirements.need_command("fish", "fish")
    found = run(["fish", "-c", FISH.format(line=line)], home).splitlines()
    return [each.split("\t")[0] for each in found]


COMPLETED = {
    "fabmon tra": ["trace"],
    "fabmon --host gpu": ["gpu001", "gpu002", "gpu003"],
    "fabmon --host gpu001,gpu002,s": ["gpu001,gpu002,sw1"],
    "fabmon trace gpu001 s": ["sw1"],
    "fabmon trace --hosts other.txt n": ["node7", "node8"],
    "fabmon trace --hosts missing.txt n": [],
    "fabmon record --dur": ["--duration"],
    "fabmon completion f": ["fish"],
}


@pytest.mark.parametrize("line", COMPLETED)
def test_bash_completes(line: str, home: Path) -> None:
    assert in_bash(line, home) == COMPLETED[line]


@pytest.mark.parametrize("line", COMPLETED)
def test_zsh_completes(line: str, home: Path) -> None:
    assert in_zsh(line, home) == COMPLETED[line]


@pytest.mark.parametrize("line", COMPLETED)
def test_fish_completes(line: str, home: Path) -> None:
    assert in_fish(line, home) == COMPLETED[line]


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("fabmon --host=gpu001,s", ["--host=gpu001,sw1"]),
        ("fabmon --hosts=oth", ["--hosts=other.txt"]),
        ("fabmon --hosts oth", ["other.txt"]),
        ("fabmon --hosts=other.txt --host=n", ["--host=node7", "--host=node8"]),
        ("fabmon --hosts=other.txt tra", ["trace"]),
        ("fabmon export day.fabrec --format=cs", ["--format=csv"]),
        ("fabmon replay day", ["day 1.fabrec"]),
        ("fabmon compare day", ["day 1.fabrec"]),
    ],
)
def test_fish_completes_files_and_values_joined_to_their_option(
    line: str, expected: list[str], home: Path
) -> None:
    (home / "day 1.fabrec").touch()
    assert in_fish(line, home) == expected


def test_fish_shows_descriptions_with_commas_whole(home: Path) -> None:
    requirements.need_command("fish", "fish")
    described = dict(
        line.split("\t")
        for line in run(["fish", "-c", FISH.format(line="fabmon r")], home).splitlines()
    )
    assert described["ras"] == "Show which ranks of a job are late or dead, by NCCL's RAS."


def test_every_example_of_the_manual_is_a_command_line() -> None:
    for name, examples in _EXAMPLES.items():
        for example in examples:
            words = example.split()[1:]
            command: click.Command = cli
            if name != "fabmon":
                assert words.pop(0) == name
                found = cli.get_command(click.Context(cli), name)
                assert found is not None
                command = found
            command.make_context(name, words)


def test_every_command_has_a_manual_page_that_groff_takes(tmp_path: Path) -> None:
    requirements.need_command("groff", "groff-base")
    pages = dict(manual_pages())
    assert isinstance(cli, Commands)
    assert set(pages) == {"fabmon.1"} | {
        f"fabmon-{name}.1" for name in cli.list_commands(click.Context(cli))
    }
    for name, text in pages.items():
        (tmp_path / name).write_text(text)
        argv = ["groff", "-man", "-Kutf8", "-Tutf8", "-ww", "-P-cbou", str(tmp_path / name)]
        done = subprocess.run(argv, capture_output=True, check=True)
        assert not done.stderr, done.stderr.decode()
        for section in ("OPTIONS", "EXAMPLES", "FILES", "ENVIRONMENT", "EXIT STATUS"):
            assert section in done.stdout.decode(), name


def test_the_manual_says_what_the_help_says() -> None:
    help_text = CliRunner().invoke(cli, ["--help"]).output
    manual = dict(manual_pages())["fabmon.1"].replace("\\-", "-")
    for option in ("--hosts FILE", "--prometheus URL", "--once", "--redact"):
        assert option in help_text
        assert option in manual
    assert "ended by signal n" in manual
