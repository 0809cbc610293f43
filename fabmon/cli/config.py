"""`fabmon config`: every setting, its value and its origin; and a commented fabmon.toml."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from fabmon.cli.options import (
    color_options,
    config_option,
    interval_option,
    report_option,
    ssh_config_option,
)
from fabmon.session.stderr_lines import say

if TYPE_CHECKING:
    from fabmon.session.setting_origins import Settings


@click.command()
@click.option(
    "--init",
    "is_init",
    is_flag=True,
    help="Write a fabmon.toml that explains every setting, where none exists.",
)
@report_option
@config_option
@interval_option
@ssh_config_option
@color_options
def config(
    is_init: bool,
    style: str,
    config: Path | None,
    interval_s: float | None,
    ssh_config: Path | None,
    color: str | None,
    theme: str | None,
) -> None:
    """Show every setting with its value and its origin.

    Origins: default, a line of fabmon.toml, an option, the environment, or state: what the screen
    kept of the last run. Options are those that fabmon would be started with.
    """
    from fabmon.session.printing import write
    from fabmon.session.setting_origins import settings, write_example

    if is_init:
        click.echo(f"wrote {write_example(config)}")
        return
    options = {
        "interval_s": interval_s,
        "ssh_config": None if ssh_config is None else str(ssh_config),
        "color": color,
        "screen.theme": theme,
    }
    found = settings(config, options)
    if found.problem:
        say(found.problem)
    write((_json(found) if style == "json" else _table(found)).encode())


def _table(found: Settings) -> str:
    missing = "" if found.has_file else " (does not exist; fabmon config --init writes it)"
    rows = [(each.name, _toml(each.value), each.origin) for each in found.entries]
    name_width = max(len(name) for name, _, _ in rows)
    value_width = min(32, max(len(value) for _, value, _ in rows))
    lines = [f"file: {found.file}{missing}", ""]
    lines += [
        f"{name:<{name_width}}  {value:<{value_width}}  {origin}".rstrip()
        for name, value, origin in rows
    ]
    return "\n".join(lines) + "\n"


def _json(found: Settings) -> str:
    entries = [each._asdict() for each in found.entries]
    record = {"file": str(found.file), "exists": found.has_file, "settings": entries}
    return json.dumps(record, ensure_ascii=False) + "\n"


def _toml(value: Any) -> str:
    """A value as in fabmon.toml; `-` for one that is not set."""
    if value is None:
        return "-"
    return json.dumps(value, ensure_ascii=False)
