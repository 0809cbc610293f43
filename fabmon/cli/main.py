"""The command line. Whatever a command needs is imported when it runs, not before."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from fabmon import __version__
from fabmon.cli.commands import Commands
from fabmon.cli.hints import hint_options, hints
from fabmon.cli.hosts import (
    FILE,
    config_option,
    host_option,
    hosts_option,
    match_option,
    prometheus_option,
    ssh_config_option,
    token_option,
)
from fabmon.cli.shared import (
    color_option,
    duration_option,
    once_option,
    picture_option,
    redact_option,
    style_option,
)
from fabmon.cli.topology import topology_option
from fabmon.session.errors import Exit, OutputError, UsageError

_EPILOG = """\b
Exit status:
  0    all went well; with --once, every node answered
  1    fabmon failed
  2    an option or a file is wrong
  3    no node could be reached
  4    with --once, doctor or flows: some nodes did not answer
  5    with doctor: something is to be mended
  128+n  ended by signal n: 129 hang-up, 130 ctrl+c, 143 SIGTERM
"""


@click.group(
    cls=Commands,
    invoke_without_command=True,
    subcommand_metavar="[COMMAND ...]",
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@hosts_option
@host_option
@prometheus_option
@match_option
@token_option
@style_option
@once_option
@duration_option
@click.option(
    "--interval",
    type=click.FloatRange(min=0.1, max=3600),
    metavar="SECONDS",
    help="From one tick to the next.  [default: 1]",
)
@topology_option
@config_option
@ssh_config_option
@color_option
@picture_option
@hint_options
@click.option("--record", type=FILE, help="Keep all that is seen in a file (*.fabrec).")
@redact_option
@click.version_option(__version__, prog_name="fabmon")
@click.pass_context
def cli(
    context: click.Context,
    hosts: Path | None,
    nodesets: tuple[str, ...],
    prometheus: str | None,
    matches: tuple[str, ...],
    token_file: Path | None,
    style: str | None,
    once: bool,
    duration: float | None,
    interval: float | None,
    topologies: tuple[Path, ...],
    config: Path | None,
    ssh_config: Path | None,
    color: str | None,
    picture: Path | None,
    model_params: float | None,
    dtype: str | None,
    dp: int | None,
    tp: int | None,
    pp: int | None,
    record: Path | None,
    redact: bool,
) -> None:
    """Watch the fabric of a GPU cluster: every link, live, and why it is hot.

    Nodes are reached over SSH and read with their own python3; nothing is installed or written on
    them. Without hosts, this machine is shown.
    """
    if context.invoked_subcommand is not None:
        _refuse_misplaced(context, context.invoked_subcommand)
        return
    if style in ("table", "json") and not once:
        raise UsageError(f"--format {style} prints one report: add --once, or use --format jsonl")
    if style == "jsonl" and once:
        raise UsageError("--once prints a table or json; for lines, use --format jsonl --duration")
    if prometheus is None and (matches or token_file is not None):
        raise UsageError("--match and --prometheus-token-file go with --prometheus URL")
    told = hints(model_params, dtype, dp, tp, pp)
    from fabmon.session import live_run
    from fabmon.session.run_options import RunOptions

    options = RunOptions(
        hosts=hosts,
        nodesets=nodesets,
        prometheus=prometheus,
        matches=matches,
        token_file=token_file,
        style=style,
        once=once,
        duration_s=duration,
        interval_s=interval,
        config=config,
        topologies=topologies,
        ssh_config=ssh_config,
        color=color,
        picture=picture,
        hints=told,
        record=record,
        redact=redact,
    )
    sys.exit(live_run.run(options))


def _refuse_misplaced(context: click.Context, name: str) -> None:
    """Raise UsageError for an option before a command: it would be ignored there."""
    command = Commands().get_command(context, name)
    known = {each.name for each in command.params} if command is not None else set()
    for option in context.command.params:
        if not isinstance(option, click.Option):
            continue
        source = context.get_parameter_source(option.name or "")
        if source is not click.core.ParameterSource.COMMANDLINE:
            continue
        text = option.opts[0]
        if option.name not in known:
            raise UsageError(f"fabmon {name} has no {text}: fabmon {name} --help says what it has")
        value = option.make_metavar(context)
        raise UsageError(f"{text} goes after {name}: fabmon {name} {text} {value}")


def main() -> None:
    """Run the command line; errors go to standard error, in one place."""
    try:
        cli(standalone_mode=False)
    except UsageError as error:
        click.echo(f"fabmon: {error}", err=True)
        sys.exit(Exit.USAGE)
    except OutputError as error:
        click.echo(f"fabmon: {error}", err=True)
        sys.exit(Exit.FAILED)
    except click.ClickException as error:
        error.show()
        sys.exit(Exit.USAGE)
    except (click.Abort, KeyboardInterrupt):
        sys.exit(Exit.INTERRUPTED)
    except Exception as error:
        from fabmon.error_log import log_error, summary

        where = log_error(error, " ".join(sys.argv[1:2]) or "fabmon")
        click.echo(f"fabmon: unexpected error: {summary(error)}; {where}", err=True)
        sys.exit(Exit.FAILED)
