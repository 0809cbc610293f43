"""`fabmon completion SHELL`: completion of commands, options and names of nodes."""

from __future__ import annotations

from pathlib import Path

import click
from click.shell_completion import CompletionItem, get_completion_class

COMPLETE_VARIABLE = "_FABMON_COMPLETE"
"""Where the scripts put what they ask; click reads it under this name."""
_FISH_CHANGES = (
    # Descriptions were cut at their first comma.
    ('string split ","', 'string split -m 1 ","'),
    # With the cursor inside a word, what is left of it counts, as in COMP_WORDS.
    ("(commandline -t)", "(commandline -ct)"),
    # fish takes only what begins with the word before the cursor: with `--hosts=`, in `--hosts=h`.
    (
        '"(_fabmon_completion)"',
        "\"(_fabmon_completion | string replace -r '^' --"
        " (string match -r -- '^--[^=]+=' (commandline -ct); or echo))\"",
    ),
)
"""What is different from click's script for fish."""
_HOSTS_FILE = Path("hosts.txt")
"""The names of the README's hosts file, where no `--hosts` stands before the cursor."""


def complete_nodes(
    context: click.Context, parameter: click.Parameter, beginning: str
) -> list[CompletionItem]:
    """Nodes of the hosts file that begin with a text; none if the file cannot be read.

    In a node set such as `gpu001,gpu0` the name after the last comma is completed.
    """
    from fabmon.fabric.hosts.hosts_file import HostsFileError, read

    given = context.params.get("hosts") or _HOSTS_FILE
    try:
        hosts = read(Path(given))
    except HostsFileError:
        return []
    before, comma, name = beginning.rpartition(",")
    return [
        CompletionItem(before + comma + host.name) for host in hosts if host.name.startswith(name)
    ]


def complete_files(
    context: click.Context, parameter: click.Parameter, beginning: str
) -> list[CompletionItem]:
    """Let the shell complete files, for a parameter that may also be something else."""
    return [CompletionItem(beginning, type="file")]


def script_for(shell: str, root: click.Command) -> str:
    """The script that a shell (`bash`, `zsh` or `fish`) reads; `root` is fabmon's command."""
    found = get_completion_class(shell)
    assert found is not None
    script = found(root, {}, "fabmon", COMPLETE_VARIABLE).source()
    for of_click, ours in _FISH_CHANGES if shell == "fish" else ():
        script = script.replace(of_click, ours)
    return script


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
    click.echo(script_for(shell, context.find_root().command))
