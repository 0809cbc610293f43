"""Command templates of `via=exec`: how the console reaches a node through a command.

A template is split into arguments as a shell would split it, then the placeholders are filled
inside single arguments. No shell sees the result, so a name cannot become shell text.
"""

from __future__ import annotations

import difflib
import re
import shlex

PRESETS = {
    "openssh": (
        "ssh -T -oBatchMode=yes -oForwardAgent=no -oForwardX11=no -oConnectTimeout=10 "
        "-oServerAliveInterval=5 {port} {user} -- {node} {probe}"
    ),
    "kubectl": "kubectl exec -i {node} -- sh -c {probe}",
    "srun": "srun --nodelist={node} --ntasks=1 --overlap --quiet sh -c {probe}",
}
"""Templates by name. An argument that is only `{port}` or `{user}` is left out when it is not
set."""

_OPTIONAL = {"{port}": "-p{port}", "{user}": "-l{user}"}
_KNOWN = ("node", "python", "probe", "user", "port")
_PLACEHOLDER = re.compile(r"\{([A-Za-z_]*)\}")


class CommandError(ValueError):
    """An invalid template; `fix` says what to write instead."""

    def __init__(self, what: str, fix: str) -> None:
        super().__init__(f"{what}: {fix}")
        self.what = what
        self.fix = fix


def split(command: str) -> tuple[str, ...]:
    """The arguments of a template or of a preset by name. Raises CommandError."""
    try:
        arguments = shlex.split(PRESETS.get(command, command))
    except ValueError as error:
        raise CommandError(f"the command cannot be split: {error}", "close the quote") from None
    if not arguments:
        raise CommandError("the command is empty", f"write one, or {', '.join(PRESETS)}")
    for argument in arguments:
        for name in _PLACEHOLDER.findall(argument):
            if name not in _KNOWN:
                close = difflib.get_close_matches(name, _KNOWN, 1)
                hint = f"did you mean {{{close[0]}}}?" if close else "use {node}, {python}, {probe}"
                raise CommandError(f"unknown placeholder {{{name}}}", hint)
    _check_program(arguments)
    return tuple(arguments)


def fill(
    arguments: tuple[str, ...],
    *,
    node: str,
    python: str,
    probe: str,
    loader: str,
    user: str | None = None,
    port: int | None = None,
) -> list[str]:
    """The arguments to run: placeholders filled, and `-c LOADER` added unless `{probe}` is used.

    `probe` is a command line for a shell on the node; `loader` is a program for `python -c`.
    """
    values = {
        "node": node,
        "python": python,
        "probe": probe,
        "user": user or "",
        "port": str(port or ""),
    }
    filled = []
    for argument in arguments:
        if argument in _OPTIONAL:
            if not values[argument[1:-1]]:
                continue
            argument = _OPTIONAL[argument]
        # One pass over the template: placeholders inside a value are not replaced.
        filled.append(_PLACEHOLDER.sub(lambda match: values.get(match[1], match[0]), argument))
    if not any("{probe}" in argument for argument in arguments):
        filled += ["-c", loader]
    return filled


def _check_program(arguments: list[str]) -> None:
    program = arguments[0].rpartition("/")[2]
    if len(arguments) == 1 and "{" not in program and not program.startswith("python"):
        close = difflib.get_close_matches(program, PRESETS, 1, 0.5)
        hint = f"did you mean {close[0]}?" if close else f"presets are {', '.join(PRESETS)}"
        raise CommandError(f"{program!r} alone does not reach a node", hint)
    if program == "ssh" and not any("{probe}" in argument for argument in arguments):
        # ssh joins its arguments with spaces for the shell on the node.
        raise CommandError("ssh passes its arguments to a shell", "end the command with {probe}")
