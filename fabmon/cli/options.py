"""Options and arguments that several commands have, and the types of their values."""

from __future__ import annotations

import datetime
import functools
import math
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import click

from fabmon.cli.completion import complete_nodes
from fabmon.session.errors import UsageError

_Command = TypeVar("_Command", bound=Callable[..., Any])

_HOURS_OF_A_DAY = 24
FILE = click.Path(dir_okay=False, path_type=Path)


class _NewFile(click.Path):
    """A file to create; `-` stays as it is if it may mean standard output, else it is refused."""

    def __init__(self, *, or_stdout: bool) -> None:
        super().__init__(dir_okay=False, path_type=Path)
        self._or_stdout = or_stdout

    def convert(
        self,
        value: str | os.PathLike[str],
        param: click.Parameter | None,
        ctx: click.Context | None,
    ) -> str | bytes | os.PathLike[str]:
        """The path, or `-`."""
        if value != "-":
            return super().convert(value, param, ctx)
        if not self._or_stdout:
            self.fail("this is not written to standard output: name a file", param, ctx)
        return "-"


NEW_FILE = _NewFile(or_stdout=False)


def in_order(*options: Callable[[Any], Any]) -> Callable[[_Command], _Command]:
    """Several options as one decorator, in the order of the help."""

    def decorated(command: _Command) -> _Command:
        for option in reversed(options):
            command = option(command)
        return command

    return decorated


def _svg(_: click.Context, param: click.Parameter, value: Path | None) -> Path | None:
    if value is not None and value.suffix.lower() not in ("", ".svg"):
        raise click.BadParameter("a picture is SVG: name the file *.svg", param=param)
    return value


def output_option(help_text: str, *, required: bool = False) -> Callable[[_Command], _Command]:
    """The option -o as the parameter `path`: a file to create, None for standard output (`-`)."""
    return click.option(
        "-o",
        "--output",
        "path",
        type=_NewFile(or_stdout=True),
        required=required,
        callback=lambda ctx, param, value: None if value == "-" else value,
        help=help_text,
    )


def number_option(
    name: str, least: int, most: int, help_text: str, default: int | None = None
) -> Callable[[_Command], _Command]:
    """An option with a whole number."""
    return click.option(
        name,
        type=click.IntRange(least, most),
        default=default,
        show_default=default is not None,
        metavar="N",
        help=help_text,
    )


class NumberRange(click.FloatRange):
    """A number in a range; nan is in none, which comparisons do not say."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number."""
        number: float = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value!r} is not a number.", param, ctx)
        return number


class Duration(click.ParamType[float]):
    """A time such as `90s` or `1h`, in seconds; a number without a unit is seconds."""

    name = "duration"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Seconds, more than 0."""
        from fabmon.recording.reading.time_parsing import parse_seconds

        seconds = float(value) if isinstance(value, (int, float)) else parse_seconds(str(value))
        if not seconds:
            self.fail(f"{value!r}: write a time such as 90s, 15m, 1h or 7d", param, ctx)
        return seconds


# Which nodes.

hosts_option = click.option(
    "--hosts",
    type=FILE,
    help="Hosts file, with lines `NODESET [key=value ...]`.  [default: the nodes of this Slurm job,"
    " or this machine]",
)
host_option = click.option(
    "--host",
    "nodesets",
    multiple=True,
    metavar="NODESET",
    shell_complete=complete_nodes,
    help="Nodes, as in gpu[001-128].",
)
nodes_options = in_order(hosts_option, host_option)
sflow_option = click.option(
    "--sflow",
    metavar="[ADDRESS]:PORT",
    help="Receive what switches sample (sFlow 5), as in :6343.",
)
inspector_option = click.option(
    "--nccl-inspector",
    metavar="[nodes:]DIR",
    help="Read what NCCL Inspector writes, here or on the nodes: bandwidth of collectives, in the"
    " view of jobs.",
)
prometheus_option = click.option(
    "--prometheus",
    metavar="URL",
    help="Read from Prometheus, or a compatible server, instead of from the nodes.",
)
model_option = click.option(
    "--model",
    type=FILE,
    help="TOML file on the model that is trained, with keys as in [model] of fabmon.toml: its"
    " expected traffic is compared with what is measured.",
)
match_option = click.option(
    "--match",
    "matches",
    multiple=True,
    metavar="MATCHERS",
    help='With --prometheus: select series by labels, as in {cluster="a"}. May be repeated: a'
    " series that matches any of them is read.",
)
token_option = click.option(
    "--prometheus-token-file",
    "token_file",
    type=FILE,
    help="With --prometheus: file with the bearer token.",
)
prometheus_options = in_order(prometheus_option, match_option, token_option)

_JOB_OPTIONS = in_order(
    click.option(
        "--job",
        metavar="ID|NAME",
        help="Only nodes on which this job of Slurm runs; without --hosts, all of its nodes.",
    ),
    click.option("--user", metavar="NAME", help="Only nodes on which jobs of this user run."),
    click.option("--partition", metavar="NAME", help="Only nodes on which its jobs run."),
)


def job_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options that select nodes by their jobs, as one argument `jobs`, in the help's order."""

    @functools.wraps(command)
    def with_jobs(job: str | None, user: str | None, partition: str | None, **rest: Any) -> None:
        from fabmon.fabric.jobs.job import JobFilter

        command(jobs=JobFilter(job or "", user or "", partition or ""), **rest)

    return _JOB_OPTIONS(with_jobs)


# How they are read and what is known of them.

config_option = click.option(
    "--config",
    type=FILE,
    help="Configuration file.  [default: ~/.config/fabmon/fabmon.toml]",
)
ssh_config_option = click.option(
    "--ssh-config", type=FILE, help="SSH configuration file.  [default: ~/.ssh/config]"
)
topology_option = click.option(
    "--topology",
    "topologies",
    type=FILE,
    multiple=True,
    help="How the fabric is cabled: TOML, CSV, Slurm topology.conf, ibnetdiscover output or NCCL"
    " XML. May be repeated.",
)


def session_options(*options: Callable[[Any], Any]) -> Callable[[Callable[..., None]], Any]:
    """Some of the options above, in the help's order, as one argument `session`."""

    def decorated(command: Callable[..., None]) -> Any:
        @functools.wraps(command)
        def with_session(
            config: Path | None,
            topologies: tuple[Path, ...] = (),
            ssh_config: Path | None = None,
            **rest: Any,
        ) -> None:
            from fabmon.session.session import Session

            command(session=Session.load(config, topologies, ssh_config), **rest)

        return in_order(*options)(with_session)

    return decorated


node_session = session_options(topology_option, config_option, ssh_config_option)
recording_session = session_options(topology_option, config_option)
plain_session = session_options(config_option)
interval_option = click.option(
    "--interval",
    "interval_s",
    type=NumberRange(min=0.1, max=3600),
    metavar="SECONDS",
    help="Time between two ticks.  [default: 1]",
)

record_option = click.option(
    "--record", type=NEW_FILE, help="Record everything to a file (*.fabrec)."
)

# What is shown, and how.

STYLES = ("table", "json", "jsonl")

style_option = click.option(
    "--format",
    "style",
    type=click.Choice(STYLES),
    help="Print instead of showing the screen: jsonl prints every tick; table and json need"
    " --once.",
)
once_option = click.option(
    "--once", is_flag=True, help="Print one report (a table, or --format json) and exit."
)
duration_option = click.option(
    "--duration",
    "duration_s",
    type=Duration(),
    metavar="TIME",
    help="Exit after this time (90s, 1h).",
)
color_option = click.option(
    "--color",
    type=click.Choice(["auto", "truecolor", "256", "16", "none"]),
    help="Colours of the screen.  [default: auto]",
)
theme_option = click.option(
    "--theme",
    type=click.Choice(["auto", "dark", "light"]),
    help="Colours for a dark or a light background; auto asks the terminal.  [default: auto]",
)
color_options = in_order(color_option, theme_option)
picture_option = click.option(
    "--picture",
    type=NEW_FILE,
    callback=_svg,
    help="Write the screen to an SVG file after --duration (default 10 s), in truecolor unless"
    " --color says otherwise, and exit.",
)
redact_option = click.option(
    "--redact", is_flag=True, help="Replace names of nodes and users, addresses and paths."
)
perf_option = click.option(
    "--perf", is_flag=True, help="Print at the end what the parts of a tick cost, in CPU time."
)
report_option = click.option(
    "--format",
    "style",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="A table for people, or JSON for programs.",
)


class LineRate(click.ParamType[float]):
    """A line rate as in the hosts file, such as `400G`, in bits/s of one direction."""

    name = "line rate"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """Bits/s, more than 0."""
        from fabmon.fabric.hosts.host_line import Bad, Speed, Word, value_of

        if isinstance(value, float):
            return value
        try:
            speed = value_of("speed", Word(str(value), 1))
        except Bad as error:
            self.fail(str(error), param, ctx)
        assert isinstance(speed, Speed)
        return speed.bps


def patience_option(seconds: int = 20) -> Callable[[_Command], _Command]:
    """--duration of a command that waits for nodes, with its default."""
    return click.option(
        "--duration",
        "duration_s",
        type=Duration(),
        default=f"{seconds}s",
        show_default=True,
        metavar="TIME",
        help="Wait at most this long for all nodes.",
    )


def check_feeds(
    prometheus: str | None,
    matches: tuple[str, ...],
    token_file: Path | None,
    sflow: str | None = None,
) -> None:
    """Raise UsageError for options that do not go with the chosen source of data."""
    if prometheus is None and (matches or token_file is not None):
        raise UsageError("--match and --prometheus-token-file need --prometheus URL")
    if prometheus is not None and sflow is not None:
        raise UsageError("--sflow and --prometheus cannot be combined")


# Recordings.

_RECORDINGS = click.Path(path_type=Path)


def recording_option(help_: str) -> Callable[[_Command], _Command]:
    """--recording of a command that also works without one; may be repeated."""
    return click.option(
        "--recording",
        "recordings",
        type=_RECORDINGS,
        multiple=True,
        metavar="FILE",
        help=f"{help_} May be repeated.",
    )


recordings_argument = click.argument("files", nargs=-1, metavar="FILE...", type=_RECORDINGS)
optional_recordings_argument = click.argument(
    "files", nargs=-1, metavar="[FILE...]", type=_RECORDINGS
)
from_option = click.option(
    "--from", "from_", metavar="TIME", help="Begin here: 14:03, -10m or event 3."
)
to_option = click.option(
    "--to", metavar="TIME", help="End here; +10m: after the start of the recording."
)
range_options = in_order(from_option, to_option)
links_option = click.option(
    "--links",
    multiple=True,
    metavar="PATTERN",
    help="Only these links: ports (leaf1/*), nodes (gpu00[1-4]) or rails (r3). May be repeated.",
)


def check_style(style: str | None, once: bool) -> None:
    """Raise UsageError unless --format and --once go together."""
    if style in ("table", "json") and not once:
        raise UsageError(f"--format {style} prints one report: add --once, or use --format jsonl")
    if style == "jsonl" and once:
        raise UsageError("--once prints a table or json; for lines, use --format jsonl --duration")


def parse_zone(text: str) -> datetime.tzinfo:
    """A time zone: `Europe/Berlin`, or hours from UTC: `+2`, `+05:30`. Raises UsageError."""
    import zoneinfo

    if text == "UTC":
        return datetime.UTC  # Works without the tz database.
    with suppress(ValueError):
        return datetime.timezone(datetime.timedelta(hours=_hours(text)))
    with suppress(zoneinfo.ZoneInfoNotFoundError, ValueError, OSError):
        return zoneinfo.ZoneInfo(text)
    raise UsageError(
        f"--tz {text}: write a zone such as Europe/Berlin, or hours such as +2 or +05:30"
    )


def _hours(text: str) -> float:
    """Hours of an offset of less than a day. Raises ValueError."""
    whole, colon, minutes = text.partition(":")
    part = float(minutes) / 60 if colon else 0.0
    hours = float(whole) + (-part if whole.startswith("-") else part)
    if not abs(hours) < _HOURS_OF_A_DAY or not 0 <= part < 1:
        raise ValueError(text)
    return hours
