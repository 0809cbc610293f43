"""The program `fabmon` and the list of its commands. Each command is imported when it runs."""

from __future__ import annotations

import errno
import importlib
import sys
import threading
from io import StringIO
from typing import Any

import click
from click.shell_completion import CompletionItem

from fabmon import __version__
from fabmon.cli.options import (
    check_feeds,
    check_style,
    color_options,
    config_option,
    duration_option,
    inspector_option,
    interval_option,
    job_options,
    model_option,
    nodes_options,
    once_option,
    perf_option,
    picture_option,
    prometheus_options,
    record_option,
    redact_option,
    sflow_option,
    ssh_config_option,
    style_option,
    topology_option,
)
from fabmon.session.errors import NO_ROOM, Exit, OutputError, UsageError
from fabmon.session.process_end import exit_at_signals, leave, name_home, open_closed_streams

_EPILOG = """Also: --color, --theme, --match, --perf, --prometheus-token-file (man fabmon,
fabmon.toml).

\b
Exit status:
  0      success; with --once, every node answered; record, watch, agent: also ctrl+c, SIGTERM
  1      fabmon, or a detector, failed
  2      a wrong option or file
  3      no node could be reached
  4      with --once, doctor or flows: some nodes did not answer
  5      doctor, ras, explain: something should be fixed; verify: data is lost
  6      explain: lines not understood
  128+n  ended by signal n: 129 hang-up, 130 ctrl+c, 143 SIGTERM
"""

_COMMANDS: dict[str, tuple[str, str]] = {
    "demo": ("demo:demo", "Try fabmon on a simulated fabric, with a guided tour."),
    "doctor": ("doctor:doctor", "Check what can be read on each node, and the configuration."),
    "trace": ("trace:trace", "Show the path of RoCE flows between two hosts, link by link."),
    "flows": ("flows:flows", "List RDMA connections between hosts, from their queue pairs."),
    "explain": ("explain:explain", "Explain logs of NCCL and PyTorch: which links failed."),
    "ras": ("ras:ras", "Show which ranks of a job are late or dead, by NCCL's RAS."),
    "need": ("need:need", "Compute the network bandwidth that a training job needs."),
    "watch": ("watch:watch", "Print findings as they open and close, and send alerts."),
    "query": ("query:query", "Ask a recording or a running watch; answers are JSON."),
    "mcp": ("query:mcp", "Answer an assistant's questions: the same as an MCP server."),
    "record": ("record:record", "Record without a screen."),
    "replay": ("replay:replay", "Replay recordings, on the screen or printed."),
    "info": ("recordings:info", "Show what a recording contains."),
    "verify": ("recordings:verify", "Read a recording completely and report damage."),
    "fluctuate": ("fluctuate:fluctuate", "Show how steady bandwidth was in a recording."),
    "compare": ("compare:compare", "Test whether one run was really slower than another."),
    "cut": ("recordings:cut", "Copy a part of a recording to a new recording."),
    "export": ("export:export", "Convert a recording for other tools."),
    "report": ("report:report", "Make an HTML page of a recording."),
    "config": ("config:config", "Show every setting and its origin, or write fabmon.toml."),
    "agent": ("agent:agent", "Serve the counters of this machine over HTTP."),
    "completion": ("completion:completion", "Print a script for completion with the tab key."),
}
"""Name -> `module:command` in fabmon.cli, and what it does in a line."""


_GROUPS: dict[str, tuple[str, ...]] = {
    "Nodes": ("hosts", "nodesets", "job", "user", "partition", "topologies", "ssh_config"),
    "Other sources": ("prometheus", "sflow", "nccl_inspector", "model"),
    "Output": ("record", "style", "once", "duration_s", "picture", "redact"),
    "Options": ("interval_s", "config", "version", "help"),
}
"""The options in the help. The others are in fabmon.toml and in the manual, and work here too."""


class Commands(click.Group):
    """The commands by name; none is imported for `fabmon --help`, which therefore starts fast."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Their names, in the order of the help."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """The command with a name, imported now; None if there is none."""
        if name not in _COMMANDS:
            return None
        module, _, attribute = _COMMANDS[name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(f"fabmon.cli.{module}"), attribute)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the arguments name. Raises UsageError with the most similar name."""
        if args[0] not in _COMMANDS and not ctx.resilient_parsing:
            import difflib

            near = difflib.get_close_matches(args[0], _COMMANDS, n=1)
            hint = f"did you mean {near[0]}?" if near else "fabmon --help lists the commands"
            raise UsageError(f"there is no command {args[0]}: {hint}")
        return super().resolve_command(ctx, args)

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Commands and options that begin with a text; no command is imported."""
        found = [
            CompletionItem(name, help=text)
            for name, (_, text) in _COMMANDS.items()
            if name.startswith(incomplete)
        ]
        return found + click.Command.shell_complete(self, ctx, incomplete)

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The options in the help, in groups, then the commands."""
        options = {each.name or "": each for each in ctx.command.params}
        if (own := self.get_help_option(ctx)) is not None:
            options["help"] = own
        records = {name: each.get_help_record(ctx) for name, each in options.items()}
        for title, names in _GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([found for name in names if (found := records[name])])
        self.format_commands(ctx, formatter)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of commands in the help."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])


@click.group(
    cls=Commands,
    invoke_without_command=True,
    subcommand_metavar="[COMMAND ...]",
    epilog=_EPILOG,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@nodes_options
@job_options
@sflow_option
@inspector_option
@prometheus_options
@style_option
@once_option
@duration_option
@interval_option
@topology_option
@config_option
@ssh_config_option
@color_options
@picture_option
@model_option
@record_option
@redact_option
@perf_option
@click.version_option(__version__, prog_name="fabmon")
@click.pass_context
def cli(context: click.Context, /, **given: Any) -> None:
    """Watch the fabric of a GPU cluster: every link, live, and why it is hot.

    Nodes are reached over SSH and read with their own python3; nothing is installed or written on
    them. Without --hosts or --host, the nodes of the Slurm job that fabmon is started in are shown,
    or else this machine.
    """
    if context.invoked_subcommand is not None:
        _refuse_misplaced(context, context.invoked_subcommand)
        return
    from fabmon.session.presentation import RunOptions
    from fabmon.session.watch_run import watch

    options = RunOptions(**given)
    check_style(options.style, options.once)
    check_feeds(options.prometheus, options.matches, options.token_file, options.sflow)
    sys.exit(watch(options))


def _refuse_misplaced(context: click.Context, name: str) -> None:
    """Raise UsageError for an option before a command, where it would be ignored."""
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
            raise UsageError(f"fabmon {name} has no {text}: see fabmon {name} --help")
        value = option.make_metavar(context)
        raise UsageError(f"{text} goes after {name}: fabmon {name} {text} {value}")


def main() -> None:
    """Run the command line. Errors are printed to standard error, in one line each."""
    open_closed_streams()
    exit_at_signals()
    name_home()
    others = threading.enumerate()
    try:
        status: int = _run()
    except SystemExit as end:
        status = end.code if isinstance(end.code, int) else Exit.OK
    leave(status, others)


def _run() -> Exit:
    """Run the command line; the exit status."""
    try:
        cli(standalone_mode=False)
        sys.stdout.flush()
    except UsageError as error:
        _complain(str(error))
        return Exit.USAGE
    except OutputError as error:
        _complain(str(error))
        return Exit.FAILED
    except click.ClickException as error:
        from fabmon.session.stderr_lines import printable_lines

        text = StringIO()
        error.show(text)
        click.echo(printable_lines(text.getvalue()), nl=False, err=True)
        return Exit.USAGE
    except (click.Abort, KeyboardInterrupt):
        return Exit.INTERRUPTED
    except OSError as error:
        if error.errno not in (*NO_ROOM, errno.EBADF):
            return _crashed(error)
        # Of a file fabmon says its name: what has none is standard output.
        _complain(f"{error.filename or 'standard output'}: {error.strerror}")
        return Exit.FAILED
    except MemoryError:
        click.echo("fabmon: out of memory", err=True)
        return Exit.FAILED
    except Exception as error:
        return _crashed(error)
    return Exit.OK


def _complain(text: str) -> None:
    """Print an error."""
    from fabmon.session.stderr_lines import say

    say(text)


def _crashed(error: Exception) -> Exit:
    """Log an error that nobody expected, and say where."""
    from fabmon.error_log import log_error, summary

    where = log_error(error, " ".join(sys.argv[1:2]) or "fabmon")
    _complain(f"unexpected error: {summary(error)}; {where}")
    return Exit.FAILED
