"""``python -m tests.lab``: a lab with traffic on it, and a command in its console.

    python -m tests.lab                                   # fabmon on mixed traffic
    python -m tests.lab --traffic collision -- fabmon --hosts {hosts} --ssh-config {ssh_config}
    python -m tests.lab --print                           # build, say how to reach it, wait

In the command, {hosts}, {ssh_config}, {known_hosts} and {key} stand for the lab's files.
"""

from __future__ import annotations

import argparse
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.lab.fabric import Lab
from tests.lab.layout import CONSOLE
from tests.lab.netns import LabError
from tests.lab.scenes import SCENES, scene


def main(argv: Sequence[str] | None = None) -> int:
    """Build the lab, run the command in it, remove the lab; the status is the command's."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.lab",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--spines", type=int, default=4)
    parser.add_argument("--leaves", type=int, default=2)
    parser.add_argument("--hosts", type=int, default=4, help="hosts under each leaf")
    parser.add_argument("--rate", type=float, default=100, help="line rate in Mb/s (100)")
    parser.add_argument("--traffic", choices=SCENES, default="mixed")
    parser.add_argument("--print", action="store_true", dest="wait", help="wait for ctrl-c")
    parser.add_argument("command", nargs="*", metavar="COMMAND")
    options = parser.parse_args(argv)
    try:
        with Lab(options.spines, options.leaves, options.hosts, options.rate) as lab:
            command = [fill(word, lab) for word in options.command or default_command()]
            with scene(lab, options.traffic):
                return wait(lab, command) if options.wait else run(lab, command)
    except (LabError, OSError) as problem:
        print(f"lab: {problem}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def default_command() -> list[str]:
    """The fabmon that is installed beside this Python, else the one on PATH."""
    beside = Path(sys.executable).with_name("fabmon")
    fabmon = str(beside) if beside.exists() else "fabmon"
    return [fabmon, "--hosts", "{hosts}", "--ssh-config", "{ssh_config}"]


def fill(word: str, lab: Lab) -> str:
    """`word` with the lab's files in place of their names; other braces are left alone."""
    for name in ("hosts", "ssh_config", "known_hosts", "key"):
        path = lab.hosts_file if name == "hosts" else getattr(lab, name)
        word = word.replace("{" + name + "}", str(path))
    return word


def run(lab: Lab, command: Sequence[str]) -> int:
    """Run `command` in the console; a ctrl-c is for the command alone."""
    # A handler that does nothing, not SIG_IGN: the command would inherit that one.
    old = signal.signal(signal.SIGINT, lambda *_: None)
    try:
        return subprocess.run(lab.console_argv(command)).returncode
    finally:
        signal.signal(signal.SIGINT, old)


def wait(lab: Lab, command: Sequence[str]) -> int:
    """Say how to reach the lab, and keep it until ctrl-c."""
    enter = shlex.join(lab.console_argv([]))
    print(f"hosts file   {lab.hosts_file}")
    print(f"ssh_config   {lab.ssh_config}")
    print(f"known_hosts  {lab.known_hosts}")
    print(f"key          {lab.key}  (user {lab.user})")
    print(f"namespaces   {lab.ns(CONSOLE)}, {lab.prefix}NODE")
    print(f"a shell      {enter} bash")
    print(f"a node       {enter} ssh -F {lab.ssh_config} {lab.layout.hosts[0]}")
    print(f"fabmon       {enter} {shlex.join(command)}")
    print("ctrl-c removes it all", flush=True)
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    sys.exit(main())
