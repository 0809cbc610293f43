"""The commands beside watching, each in a module of its own that is imported when it is run."""

from __future__ import annotations

import importlib

import click

_COMMANDS: dict[str, tuple[str, str]] = {
    "doctor": ("fabmon.cli.doctor:doctor", "What can be read where, and what is set up wrongly."),
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
