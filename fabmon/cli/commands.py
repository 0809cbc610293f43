"""The commands beside watching, each in a module of its own that is imported when it is run."""

from __future__ import annotations

import importlib

import click

_COMMANDS: dict[str, tuple[str, str]] = {
    "demo": ("fabmon.cli.demo:demo", "A simulated fabric to try it on, with a guided minute."),
    "doctor": ("fabmon.cli.doctor:doctor", "What can be read where, and what is set up wrongly."),
    "trace": ("fabmon.cli.trace:trace", "The way of RoCE flows between two hosts, link by link."),
    "flows": ("fabmon.cli.flows:flows", "Who talks to whom over RDMA, by the hosts' queue pairs."),
    "record": ("fabmon.cli.record:record", "Watch without a screen, and keep all of it."),
    "replay": ("fabmon.cli.replay:replay", "Play recordings, on the screen or printed."),
    "info": ("fabmon.cli.recordings:info", "What a recording holds."),
    "verify": ("fabmon.cli.recordings:verify", "Read all of a recording; say what is damaged."),
    "cut": ("fabmon.cli.recordings:cut", "A part of a recording as one of its own."),
    "agent": ("fabmon.cli.agent:agent", "Serve this machine's counters over HTTP."),
}
"""Name -> where it is, as `module:command`, and what it does in a line."""


class Commands(click.Group):
    """Knows the commands by name without importing them: `fabmon --help` stays quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Their names, in the order to show."""
        return list(_COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        """The command called `name`, imported now; None when there is none."""
        if name not in _COMMANDS:
            return None
        module, _, attribute = _COMMANDS[name][0].partition(":")
        command: click.Command = getattr(importlib.import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of the help, from the lines above."""
        if _COMMANDS:
            with formatter.section("Commands"):
                formatter.write_dl([(name, text) for name, (_, text) in _COMMANDS.items()])
