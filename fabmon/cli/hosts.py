"""Which nodes a command is about: the options, and what they name."""

from __future__ import annotations

import socket
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from fabmon.session.errors import UsageError

if TYPE_CHECKING:
    from fabmon.fabric.model import Host

FILE = click.Path(dir_okay=False, path_type=Path)

hosts_option = click.option(
    "--hosts",
    type=FILE,
    help="Hosts file: `NODESET [key=value ...]` a line. Default: this machine.",
)
host_option = click.option(
    "--host", "nodesets", multiple=True, metavar="NODESET", help="Nodes, as in gpu[001-128]."
)
prometheus_option = click.option(
    "--prometheus",
    metavar="URL",
    help="Read what a Prometheus-compatible engine has instead of the nodes.",
)
match_option = click.option(
    "--match",
    "matches",
    multiple=True,
    metavar="MATCHERS",
    help='With --prometheus: only such series, as in {cluster="a"}; any of several.',
)
token_option = click.option(
    "--prometheus-token-file",
    "token_file",
    type=FILE,
    help="With --prometheus: a file with the bearer token.",
)
config_option = click.option(
    "--config", type=FILE, help="Configuration instead of the user's fabmon.toml."
)
ssh_config_option = click.option(
    "--ssh-config", type=FILE, help="SSH configuration instead of ~/.ssh/config."
)


def selected_hosts(path: Path | None, nodesets: Sequence[str]) -> list[Host]:
    """The nodes of --hosts and --host; this machine when none are named. Raises UsageError."""
    from fabmon.fabric.hosts.hosts_file import HostsFileError, from_nodesets, read
    from fabmon.fabric.model import Host

    hosts: list[Host] = []
    try:
        if path is not None:
            hosts += read(path)
        if nodesets:
            hosts += from_nodesets(list(nodesets))
    except HostsFileError as error:
        raise UsageError(str(error)) from None
    counts = Counter(host.name for host in hosts)
    twice = sorted(name for name, count in counts.items() if count > 1)
    if twice:
        raise UsageError(f"named twice: {', '.join(twice)}: once in --hosts and once in --host")
    return hosts or [Host(name=socket.gethostname(), via="local")]
