"""The command line: help, mistakes, and exit statuses."""

from __future__ import annotations

import gc
import io
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import Any
from unittest import mock

import click
import msgspec
import pytest

from fabmon.cli import main as command_line
from fabmon.session.config import load
from fabmon.session.errors import UsageError
from fabmon.tui.palette import Depth, palette
from tests.goldens import check_golden

GOLDENS = Path(__file__).parent / "goldens"
ROOT = Path(__file__).parents[2]


def fabmon(
    *arguments: str, timeout_s: float = 240, **environment: str
) -> subprocess.CompletedProcess[str]:
    program = [str(Path(sys.executable).with_name("fabmon")), *arguments]
    env = {**os.environ, **environment}
    return subprocess.run(program, capture_output=True, text=True, timeout=timeout_s, env=env)


def fabmon_here(*arguments: str) -> subprocess.CompletedProcess[str]:
    """As `fabmon`, in this process, which takes a tenth of the time: for commands that end before
    they watch anything."""
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2))
    before = gc.get_threshold()
    with (
        mock.patch.object(sys, "argv", ["fabmon", *arguments]),
        mock.patch.object(command_line, "leave", lambda status, _: sys.exit(status)),
        redirect_stdout(out),
        redirect_stderr(err),
        pytest.raises(SystemExit) as ended,
    ):
        command_line.main()
    gc.set_threshold(*before)
    said = (each.buffer.getvalue().decode() for each in (out, err))
    return subprocess.CompletedProcess(["fabmon", *arguments], int(ended.value.code or 0), *said)


def lines_until(
    wanted: Callable[[list[Any]], object], *arguments: str, **environment: str
) -> tuple[list[Any], str]:
    """The records of fabmon's lines up to those that are wanted, and what is on standard error.

    The reader leaves then. A busy machine takes longer, with the same result.
    """
    program = [str(Path(sys.executable).with_name("fabmon")), *arguments, "--format", "jsonl"]
    records: list[Any] = []
    with subprocess.Popen(
        program,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        patience = threading.Timer(60, process.kill)
        patience.start()
        for line in process.stdout:
            records.append(json.loads(line))
            if wanted(records):
                break
        process.stdout.close()
        errors = process.stderr.read()
        patience.cancel()
    assert records, errors
    assert wanted(records), errors + json.dumps(records[-1])
    assert process.returncode == 0, errors
    return records, errors


def ticks(records: list[Any]) -> list[Any]:
    """The ticks of some records."""
    return [record for record in records if record["type"] == "tick"]


def test_help() -> None:
    done = fabmon("--help")
    assert done.returncode == 0
    check_golden(GOLDENS / "help.txt", done.stdout)


def test_every_option_is_in_the_help_and_a_person_can_take_them_in() -> None:
    grouped, _, rest = (GOLDENS / "help.txt").read_text().partition("Commands:")
    listed = set(re.findall(r"^  (?:-h, )?(--[a-z-]+)", grouped, re.M))
    also = set(re.findall(r"--[a-z-]+", rest.partition("Also: ")[2].partition("(")[0]))
    every = {each.opts[0] for each in command_line.cli.params if isinstance(each, click.Option)} | {
        "--help"
    }
    assert listed | also == every
    assert not listed & also
    assert len(listed - {"--help", "--version"}) <= 20


def test_the_readme_has_the_same_exit_statuses_as_the_help() -> None:
    readme = (ROOT / "README.md").read_text()
    for line in (GOLDENS / "help.txt").read_text().partition("Exit status:\n")[2].splitlines():
        number, _, meaning = line.strip().partition(" ")
        assert f"| {number} | {meaning.strip()} |" in readme


def test_this_machine_once_as_a_table() -> None:
    done = fabmon("--once")
    assert done.returncode == 0, done.stderr
    assert "1/1 nodes up" in done.stdout
    assert done.stderr == ""


@pytest.mark.parametrize("command", [["--once"], ["doctor"], ["flows"]])
def test_a_node_that_fails_is_named_once(command: list[str]) -> None:
    done = fabmon(*command, "--host", "nosuch.invalid")
    assert done.returncode == 3
    assert (done.stdout + done.stderr).count("no address for nosuch.invalid") == 1, done.stderr


def test_this_machine_as_lines() -> None:
    def are_enough(records: list[Any]) -> bool:
        found = ticks(records)
        return len(found) >= 4 and found[-1]["nodes_up"] == 1

    lines_until(are_enough, "--interval", "0.5")
    done = fabmon("--format", "jsonl", "--duration", "1", "--host", "localhost port=1")
    assert done.returncode == 3, done.stderr
    assert ticks([json.loads(line) for line in done.stdout.splitlines()])


def test_a_pipe_is_never_painted_on_and_a_report_is_no_recording(tmp_path: Path) -> None:
    done = fabmon(XDG_RUNTIME_DIR=str(tmp_path))
    assert done.returncode == 0
    assert "\x1b" not in done.stdout + done.stderr
    assert "1/1 nodes up" in done.stdout
    assert list(tmp_path.iterdir()) == []


def test_a_terminal_that_cannot_paint_gets_a_report() -> None:
    done = subprocess.run(
        ["script", "-qec", str(Path(sys.executable).with_name("fabmon")), "/dev/null"],
        env={**os.environ, "TERM": "dumb"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert "\x1b" not in done.stdout
    assert "1/1 nodes up" in done.stdout


@pytest.mark.parametrize("what", ["--once", "config", "query --schema"])
def test_closed_standard_output_is_said_and_no_crash(what: str) -> None:
    program = Path(sys.executable).with_name("fabmon")
    done = subprocess.run(
        f"{program} {what} >&-", shell=True, capture_output=True, text=True, timeout=240
    )
    assert done.stderr.endswith("fabmon: standard output: Bad file descriptor\n")
    assert done.returncode == 1


@pytest.mark.parametrize("what", ["--once", "--format jsonl --duration 1"])
def test_a_full_disk_is_one_line_and_status_1(what: str) -> None:
    program = Path(sys.executable).with_name("fabmon")
    done = subprocess.run(
        f"{program} {what} >/dev/full", shell=True, capture_output=True, text=True, timeout=240
    )
    assert done.returncode == 1
    assert done.stderr == "fabmon: standard output: No space left on device\n"


def test_a_picture_that_cannot_be_kept_is_one_line_and_status_1() -> None:
    done = fabmon("--picture", "/dev/full", "--duration", "0.5")
    assert done.returncode == 1
    assert "fabmon: /dev/full: No space left on device\n" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("options", "is_ours"), [([], True), (["--color", "none"], False)])
def test_a_picture_has_our_colours_whatever_the_terminal_does(
    options: list[str], is_ours: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("TERM", "dumb")
    path = tmp_path / "now.svg"
    done = fabmon("demo", "--hosts", "4", "--duration", "3", "--picture", str(path), *options)
    assert done.returncode == 0, done.stderr
    assert path.stat().st_mode & 0o777 == 0o600
    background = palette(Depth.TRUECOLOR).text.bgcolor
    assert background is not None
    assert (background.get_truecolor().hex in path.read_text()) is is_ours


def test_a_reader_that_leaves_is_no_error() -> None:
    program = Path(sys.executable).with_name("fabmon")
    done = subprocess.run(
        f"{program} --format jsonl --duration 5 | head -n 1; echo ${{PIPESTATUS[0]}}",
        shell=True,
        executable="/bin/bash",
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.stdout.splitlines()[-1] == "0"
    assert done.stderr == ""


def test_no_node_reached_is_status_3(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts.txt"
    hosts.write_text("gpu001 address=127.0.0.1 port=1\n")
    done = fabmon("--hosts", str(hosts), "--once")
    assert done.returncode == 3
    assert "x gpu001 failed" in done.stdout
    assert "refused" in done.stdout


def test_some_nodes_reached_is_status_4(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts.txt"
    hosts.write_text("here via=local\ngpu001 address=127.0.0.1 port=1\n")
    done = fabmon("--hosts", str(hosts), "--once")
    assert done.returncode == 4
    assert "1/2 nodes up" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--hosts", "/nowhere/hosts.txt"], "/nowhere/hosts.txt: no such file"),
        (["--format", "table"], "add --once"),
        (["--format", "jsonl", "--once"], "use --format jsonl --duration"),
        (["--interval", "0"], "0.1<=x<=3600"),
        (["--hosts", "f", "doctor"], "--hosts goes after doctor: fabmon doctor --hosts FILE"),
        (["--prometheus", "http://p", "trace"], "fabmon trace has no --prometheus"),
        (
            ["--prometheus", "http://p", "--nccl-inspector", "nodes:/x"],
            "--nccl-inspector nodes:/x: with --prometheus no node is connected to",
        ),
        (
            ["--once", "--picture", "/nowhere/now.svg"],
            "/nowhere: no such directory; make it first: mkdir -p /nowhere",
        ),
        (["--picture", "now.png"], "a picture is SVG: name the file *.svg"),
        (["--host", "gpu[1-"], "gpu[1-"),
        (["need", "--dp", "8"], "--dp describes a model: add --params"),
        (["need", "--params", "70B"], "--params needs --dp"),
        (["need", "--params", "many", "--dp", "8"], "a number of parameters, as in 70e9 or 70B"),
        (["--model", "/nowhere/model.toml"], "/nowhere/model.toml: no such file"),
        (["--host", "-oProxyCommand=x"], "--host:1:15: '=' cannot be in a node set"),
    ],
)
def test_a_mistake_is_named_on_stderr_with_status_2(arguments: list[str], complaint: str) -> None:
    done = fabmon(*arguments)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert done.stdout == ""
    assert "Traceback" not in done.stderr


def test_a_mistake_in_the_hosts_file_has_its_place(tmp_path: Path) -> None:
    hosts = tmp_path / "hosts.txt"
    hosts.write_text("gpu[001-004] spede=400G\n")
    done = fabmon("--hosts", str(hosts))
    assert done.returncode == 2
    assert f"{hosts}:1:14" in done.stderr
    assert "speed" in done.stderr


def test_an_unknown_key_of_the_configuration_is_refused_with_the_nearest(tmp_path: Path) -> None:
    path = tmp_path / "fabmon.toml"
    path.write_text("[thresholds.model]\nfull_utli = 0.9\n")
    with pytest.raises(
        UsageError, match=r"fabmon.toml:2: .*`full_utli`.* did you mean `full_util`"
    ):
        load(path)


def test_a_table_of_thresholds_that_is_gone_is_named_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "fabmon.toml"
    path.write_text("[thresholds.ecmp_groups]\nfull_util = 0.9\n")
    with pytest.raises(UsageError, match=r"fabmon.toml:1: .*`ecmp_groups` - at `\$.thresholds`$"):
        load(path)


def test_a_wrong_type_in_the_configuration_is_refused_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "fabmon.toml"
    path.write_text('interval_s = "fast"\n')
    with pytest.raises(UsageError, match=r"\$\.interval_s"):
        load(path)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("interval_s = 0.0", r"\$\.interval_s`: write 0\.1 to 3600 seconds"),
        ("interval_s = nan", r"\$\.interval_s`: write 0\.1 to 3600 seconds"),
        ('color = "blue"', r"\$\.color`: write auto, truecolor, 256, 16 or none"),
        ("[prometheus]\nhistory_minutes = -1", r"history_minutes`: write 0 to 1440 minutes"),
        ("[thresholds.model]\nfull_util = 80", r"full_util`: write 0 to 1, a share"),
        ("[thresholds.node_lost]\nafter_s = -1.0", r"after_s`: write 0 to 86400 seconds"),
        ('[roles]\n"eno1" = "front"', r'\[roles\] "eno1" = "front": write one of rail, storage'),
        ('[roles]\n"gpu1/" = "rail"', r'\[roles\] "gpu1/": write "host/port"'),
        ("[roles]\neno1 = 1", r"Expected `str`, got `int` - at `\$\.roles"),
    ],
)
def test_a_value_out_of_its_range_is_refused_with_the_range(
    tmp_path: Path, text: str, complaint: str
) -> None:
    path = tmp_path / "fabmon.toml"
    path.write_text(text)
    with pytest.raises(UsageError, match=complaint):
        load(path)


def test_thresholds_may_be_given_one_by_one(tmp_path: Path) -> None:
    path = tmp_path / "fabmon.toml"
    path.write_text("[thresholds.model]\nfull_util = 0.9\n")
    thresholds = load(path).thresholds.model
    defaults = load(Path("/dev/null")).thresholds.model
    assert thresholds == msgspec.structs.replace(defaults, full_util=0.9)


def test_roles_are_given_by_host_and_port_or_by_port(tmp_path: Path) -> None:
    path = tmp_path / "fabmon.toml"
    path.write_text(
        'management_ports = ["oob*"]\n[roles]\n"gpu*/mlx5_8" = "storage"\neno1 = "rail"\n'
    )
    rules = load(path).role_rules
    assert rules.management == ("oob*",)
    assert rules.overrides == (("gpu*", "mlx5_8", "storage"), ("*", "eno1", "rail"))


def test_the_demo_as_lines_says_on_stderr_that_it_is_simulated() -> None:
    _, errors = lines_until(
        lambda records: len(ticks(records)) > 5, "demo", "--speed", "20", "--seed", "3"
    )
    # A busy machine may add that it does not analyse every tick, 50 ms apart.
    assert errors.startswith("fabmon: SIMULATED: nothing in this report is real\n")


@pytest.mark.parametrize("topology", ["leaf-spine", "rail", "fat-tree"])
def test_the_demo_once_as_a_table(topology: str) -> None:
    done = fabmon("demo", "--topology", topology, "--once")
    assert done.returncode == 0, done.stderr
    assert "gpu008" in done.stdout
    assert "leaf1" in done.stdout
    # Not the idle fabric of its first two seconds.
    cause = "Overloaded link" if topology == "fat-tree" else "ECMP collision"
    assert f"! {cause}: " in done.stdout
    assert "  affects job 8801 llama" in done.stdout


def test_a_single_report_of_the_demo_says_that_its_speed_is_not_used() -> None:
    done = fabmon("demo", "--once", "--speed", "5")
    assert done.returncode == 0
    assert "--speed 5 has no effect" in done.stderr


def test_a_mistake_in_a_demo_scenario_is_named(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text("[[fault]]\nkind = 'incast'\nwhere = 'gpu999'\n")
    done = fabmon("demo", "--scenario", str(path))
    assert done.returncode == 2
    assert "no node 'gpu999'" in done.stderr
    assert done.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["repaly"], "there is no command repaly: did you mean replay?\n"),
        (["docter", "--host", "a"], "there is no command docter: did you mean doctor?\n"),
        (["xyzzy"], "there is no command xyzzy: fabmon --help lists the commands\n"),
        (["--hots", "f"], "Did you mean"),
        (["replay", "--formt", "json"], "Did you mean"),
        (["--hosts", "/nope.txt"], "fabmon: /nope.txt: no such file\n"),
        (["--topology", "/nope.csv"], "fabmon: /nope.csv: no such file\n"),
        (["--config", "/nope.toml"], "fabmon: /nope.toml: no such file\n"),
        (["--hosts", "/"], "'/' is a directory"),
    ],
)
def test_a_misspelt_name_gets_a_suggestion_and_a_missing_file_no_line_number(
    arguments: list[str], complaint: str
) -> None:
    done = fabmon(*arguments)
    assert done.returncode == 2
    assert complaint in done.stderr
    assert ":1:1" not in done.stderr
