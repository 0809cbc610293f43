"""`fabmon completion SHELL`: completion of commands, options and names of nodes."""

from __future__ import annotations

from pathlib import Path

import click
from click.shell_completion import CompletionItem, get_completion_class

COMPLETE_VARIABLE = "_FABMON_COMPLETE"
"""Where the scripts put what they ask; click reads it under this name."""
_HOSTS_FILE = Path("hosts.txt")
"""The names of the README's hosts file, where no `--hosts` stands before the cursor."""


def complete_nodes(
    context: click.Context, parameter: click.Parameter, beginning: str
) -> list[CompletionItem]:
    """Nodes of the hosts file that begin with a text; none if the file cannot be read."""
    from fabmon.fabric.hosts.hosts_file import HostsFileError, read

    given = context.params.get("hosts") or _HOSTS_FILE
    try:
        hosts = read(Path(given))
    except HostsFileError:
        return []
    return [CompletionItem(host.name) for host in hosts if host.name.startswith(beginning)]


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print a script that completes commands, options and nodes with the tab key.

    \b
    bash: fabmon completion bash > ~/.local/share/bash-completion/completions/fabmon
    zsh:  fabmon completion zsh > ~/.zfunc/_fabmon   (with ~/.zfunc in fpath)
    fish: fabmon completion fish > ~/.config/fish/completions/fabmon.fish
    """
    script = get_completion_class(shell)
    assert script is not None
    root = context.find_root().command
    source = script(root, {}, "fabmon", COMPLETE_VARIABLE).source()
    # click's script for fish cuts descriptions at their first comma.
    click.echo(source.replace('string split ","', 'string split -m 1 ","'))
