"""`fabmon compare`: whether one run was really slower than another."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fabmon.cli.hosts import config_option
from fabmon.cli.passages import LINKS, studied, working_out
from fabmon.cli.replay import opened, warn_of_losses
from fabmon.cli.topology import load_topology
from fabmon.session.errors import UsageError

if TYPE_CHECKING:
    from fabmon.analysis.fluctuation.comparison import StudiedRun
    from fabmon.fabric.topology.plan import Topology

_SAME_RUN_NS = 60 * 1_000_000_000


@click.command()
@click.argument("a")
@click.argument("b")
@LINKS
@click.option(
    "--format", "style", type=click.Choice(["table", "json"]), default="table", show_default=True
)
@config_option
def compare(a: str, b: str, links: tuple[str, ...], style: str, config: Path | None) -> None:
    """Whether B differs from A by more than the noise: bandwidth and iterations.

    A and B are a recording each, or a directory or a quoted pattern of several: then each is a run
    of its own, but files that go on where another ends. Links are matched by name, jobs by hosts.
    """
    from fabmon.analysis.fluctuation.comparison import compare as compared
    from fabmon.report.comparison import comparison_table
    from fabmon.session.config import load

    settings = load(config)
    topology = load_topology(settings, config)
    runs = [_runs(text, links, settings.management_ports, topology) for text in (a, b)]
    if links and not all(run.series for side in runs for run in side):
        raise UsageError(f"--links {' '.join(links)}: no rail and no switch port is called so")
    found = compared(*runs)
    if style == "json":
        import msgspec

        print(msgspec.json.format(msgspec.json.encode(found)).decode())
    else:
        print(comparison_table(found))


def _runs(
    text: str, links: Sequence[str], management: Sequence[str], topology: Topology
) -> list[StudiedRun]:
    from fabmon.analysis.fluctuation.comparison import StudiedRun

    found = []
    for files in _files(text):
        with opened(files) as timeline:
            study = studied(timeline, links=links, management=management, topology=topology)
            warn_of_losses(timeline)
        with working_out(files[0].name) as tell:
            found.append(StudiedRun.of(files[0].name, study, tell))
    return found


def _files(text: str) -> list[list[Path]]:
    """The files of each run. Raises UsageError."""
    path = Path(text)
    pattern = str(path.relative_to(path.anchor))
    paths = [path] if path.exists() else sorted(Path(path.anchor).glob(pattern))
    if not paths:
        raise UsageError(f"{text}: there is no such recording")
    with opened(paths) as timeline:
        times = [(each.path, each.start_ns, each.until_ns) for each in timeline.files]
    runs: list[list[Path]] = []
    until_ns = 0
    for file, start_ns, end_ns in times:
        if runs and start_ns <= until_ns + _SAME_RUN_NS:
            runs[-1].append(file)
        else:
            runs.append([file])
        until_ns = max(until_ns, end_ns)
    return runs
