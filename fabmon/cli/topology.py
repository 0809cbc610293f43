"""How the fabric is cabled, as far as the person says: `--topology` and `[topology]`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fabmon.cli.errors import UsageError
from fabmon.cli.hosts import FILE

if TYPE_CHECKING:
    from fabmon.cli.config import Config
    from fabmon.fabric.topology.given import Topology

topology_option = click.option(
    "--topology",
    "topologies",
    type=FILE,
    multiple=True,
    help="How the fabric is cabled: TOML, CSV, Slurm's topology.conf, ibnetdiscover, NCCL's XML.",
)


def given(settings: Config, config: Path | None, paths: Sequence[Path] = ()) -> Topology:
    """What the files and the configuration say of the cabling. Raises UsageError."""
    from fabmon.cli.config import user_file
    from fabmon.fabric.topology.given import TopologyError
    from fabmon.fabric.topology.read import load

    file = config or user_file()
    try:
        return load(settings.topology, file, paths)
    except TopologyError as error:
        raise UsageError(str(error)) from None
