"""`fabmon compare`: whether one run was really slower than another."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fabmon.cli.completion import complete_files
from fabmon.cli.options import links_option, plain_session, report_option
from fabmon.session.errors import UsageError

if TYPE_CHECKING:
    from fabmon.analysis.fluctuation.comparison import StudiedRun
    from fabmon.session.session import Session

_SAME_RUN_NS = 60 * 1_000_000_000
"""Files that begin at most this long after the end of another continue its run."""


@click.command()
@click.argument("a", shell_complete=complete_files)
@click.argument("b", shell_complete=complete_files)
@links_option
@report_option
@plain_session
def compare(a: str, b: str, links: tuple[str, ...], style: str, session: Session) -> None:
    """Test whether B differs from A by more than the noise: bandwidth and iterations.

    A and B are recordings. Each may also be a directory or a quoted pattern of several recordings:
    then each file is a run, except files that continue another. Links are matched by name, jobs by
    their number or name, without a scheduler by their hosts.
    """
    from fabmon.analysis.fluctuation.comparison import compare as compare_runs
    from fabmon.report.comparison import comparison_table
    from fabmon.session.printing import print_report

    runs = [_runs(session, text, links) for text in (a, b)]
    found = compare_runs(*runs)
    print_report(style, found, lambda each: comparison_table(each) + "\n")


def _runs(session: Session, text: str, links: Sequence[str]) -> list[StudiedRun]:
    from fabmon.analysis.fluctuation.comparison import StudiedRun
    from fabmon.session.replay_run import open_recordings, study_progress, study_range, whole_range

    found = []
    for files in _files(text):
        with open_recordings(files) as timeline:
            begin, end = whole_range(timeline, None, None)
            study = study_range(session, timeline, begin, end, links=links)
        with study_progress(files[0].name) as report:
            found.append(StudiedRun.of(files[0].name, study, report))
    return found


def _files(text: str) -> list[list[Path]]:
    """The files of each run. Raises UsageError."""
    from fabmon.session.replay_run import open_recordings

    path = Path(text)
    pattern = str(path.relative_to(path.anchor))
    paths = [path] if path.exists() else sorted(Path(path.anchor).glob(pattern))
    if not paths:
        raise UsageError(f"{text}: no such file")
    with open_recordings(paths) as timeline:
        times = [(each.path, each.start_ns, each.until_ns) for each in timeline.every_file]
    runs: list[list[Path]] = []
    until_ns = 0
    for file, start_ns, end_ns in times:
        if runs and start_ns <= until_ns + _SAME_RUN_NS:
            runs[-1].append(file)
        else:
            runs.append([file])
        until_ns = max(until_ns, end_ns)
    return runs
