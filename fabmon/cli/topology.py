"""How the fabric is cabled, as far as the person says: `--topology` and `[topology]`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fabmon.cli.hosts import FILE
from fabmon.session.errors import UsageError

if TYPE_CHECKING:
    from fabmon.fabric.topology.plan import Topology
    from fabmon.session.config import Config

topology_option = click.option(
    "--topology",
    "topologies",
    type=FILE,
    multiple=True,
    help="How the fabric is cabled: TOML, CSV, Slurm's topology.conf, ibnetdiscover, NCCL's XML.",
)


def load_topology(settings: Config, config: Path | None, paths: Sequence[Path] = ()) -> Topology:
    """What the files and the configuration say of the cabling. Raises UsageError."""
    from fabmon.fabric.topology.plan import TopologyError
    from fabmon.fabric.topology.plan_files import load
    from fabmon.session.config import user_file

    file = config or user_file()
    try:
        return load(settings.topology, file, paths)
    except TopologyError as error:
        raise UsageError(str(error)) from None
