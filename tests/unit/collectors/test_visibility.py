"""What is lost in a container, with hidepid or with SELinux is named, never looks absent."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any, Dict, List

import pytest

from collectors.hostfs import HostFS, selinux_text
from collectors.readers.visibility import limits
from collectors.source import Denied, from_oserror
from tests.fixtures import hosts, parts
from tests.fixtures.tree import Tree
from tests.requirements import need_command, need_root

ROOT = Path(__file__).parents[3]


def lost(root: Path) -> Dict[str, str]:
    """The text for each source that lacks something."""
    return {each["source"]: each["text"] for each in limits(HostFS(str(root)))}


def nic(root: Path, address: str, driver: str) -> Path:
    """A network function on PCI, bound to a driver, with neither interface nor RDMA device."""
    place = root / parts.pci(Tree(root), address, driver)
    (place / "class").write_text("0x020000\n")
    return place


@pytest.mark.parametrize("name", sorted(hosts.SMALL_HOSTS))
def test_nothing_is_hidden_on_a_host(tmp_path: Path, name: str) -> None:
    hosts.SMALL_HOSTS[name](tmp_path)
    assert lost(tmp_path) == {}


def test_a_container_that_has_the_devices_and_not_the_counters(tmp_path: Path) -> None:
    """As with --device=/dev/infiniband and a /sys of its own."""
    hosts.container_host(tmp_path)
    for number in range(9):
        device = tmp_path / f"dev/infiniband/uverbs{number}"
        device.parent.mkdir(parents=True, exist_ok=True)
        device.touch()
    text = lost(tmp_path)["ib"]
    assert text.startswith("/dev/infiniband/uverbs0, /dev/infiniband/uverbs1, ")
    assert " and 5 more without /sys/class/infiniband: their counters are not visible" in text


def test_nics_of_another_network_namespace(tmp_path: Path) -> None:
    """Their interfaces are not here; the directory of a virtio NIC's is, and empty."""
    hosts.container_host(tmp_path)
    nic(tmp_path, "0000:18:00.0", "mlx5_core")
    (nic(tmp_path, "0000:00:03.0", "virtio-pci") / "virtio2/net").mkdir(parents=True)
    nic(tmp_path, "0000:19:00.0", "vfio-pci")
    (nic(tmp_path, "0000:1a:00.0", "mlx5_core") / "infiniband/mlx5_2").mkdir(parents=True)
    assert lost(tmp_path) == {
        "netdev": "2 NICs have no interface in this network namespace: 0000:00:03.0 (virtio-pci), "
        "0000:18:00.0 (mlx5_core); a container needs the host's network"
    }


def test_a_container_without_sys(tmp_path: Path) -> None:
    assert "no /sys here" in lost(tmp_path)["netdev"]


@pytest.mark.parametrize(
    ("options", "mode"),
    [
        ("rw,nosuid,hidepid=2", "2"),
        ("rw,relatime,hidepid=invisible", "invisible"),
        ("rw,hidepid=2,gid=4242", "2"),
        (f"rw,hidepid=2,gid={os.getegid()}", None),
        ("rw,hidepid=off", None),
        ("ro,nosuid", None),
    ],
)
def test_a_proc_that_hides_processes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: str, mode: Any
) -> None:
    hosts.container_host(tmp_path)
    (tmp_path / "proc/self").mkdir(parents=True, exist_ok=True)
    (tmp_path / "proc/self/mounts").write_text(
        f"tmpfs /run tmpfs rw 0 0\nproc /proc proc {options} 0 0\n"
    )
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    text = lost(tmp_path).get("qps", "")
    assert text.startswith(
        f"/proc hides the processes of other accounts (hidepid={mode})" if mode else ""
    )
    assert bool(text) is bool(mode)
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert lost(tmp_path) == {}, "root sees all"


def test_what_selinux_refuses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mode of the file allows it: advice about groups would be wrong."""
    tree = {
        "sys/fs/selinux/enforce": "1",
        "proc/self/attr/current": "system_u:system_r:container_t:s0:c1,c2\0",
    }
    for name, text in tree.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    said = selinux_text(str(tmp_path))
    assert said.startswith("SELinux enforces its policy on container_t: ")
    (tmp_path / "sys/fs/selinux/enforce").write_text("0")
    assert selinux_text(str(tmp_path)) == ""
    monkeypatch.setattr("collectors.source.selinux_text", lambda: said)
    path = tmp_path / "counter"
    path.write_text("1")
    error = from_oserror(PermissionError(errno.EACCES, "Permission denied", str(path)))
    assert isinstance(error, Denied)
    assert str(error) == f"Permission denied: {path}; {said}"


def hello_in(*container: str) -> Dict[str, Any]:
    """The hello of a probe of this machine in a container, and that its frame has values."""
    need_root()
    need_command("unshare", "util-linux")
    need_command("setpriv", "util-linux")
    # From memory, as a console starts it: an account without rights could not read the checkout.
    done = subprocess.run(
        [*container, sys.executable, "-c", "import sys;exec(sys.stdin.read())"],
        input=_PROGRAM,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        universal_newlines=True,
        check=False,
        timeout=240,
    )
    lines: List[Any] = [json.loads(line) for line in done.stdout.splitlines()]
    assert lines, done.stderr
    assert lines[-1][0] == "frame"
    assert not [line for line in lines if line[0] == "notice" and line[1]["event"] == "lost"]
    hello = lines[0][1]
    assert isinstance(hello, dict)
    return hello


_PROGRAM = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
sys.argv = ["collectors", "--once"]
import runpy
runpy.run_module("collectors", None, "__main__", True)
"""

_MOUNT_SYS = ("sh", "-c", 'mount -t sysfs none /sys && exec "$@"', "sh")
_READ_ONLY = ("sh", "-c", 'mount -t proc -o ro proc /proc && exec "$@"', "sh")
_HIDEPID = ("sh", "-c", 'mount -t proc -o hidepid=2 proc /proc && exec "$@"', "sh")
_NOBODY = ("setpriv", "--reuid", "65534", "--regid", "65534", "--clear-groups")


def has_nic() -> bool:
    return any(
        (path / "class").read_text().startswith("0x02")
        for path in Path("/sys/bus/pci/devices").glob("*")
    )


def test_a_real_network_namespace() -> None:
    if not has_nic():
        pytest.skip("this machine has no NIC on PCI")
    hello = hello_in("unshare", "-n", "-m", *_MOUNT_SYS)
    (limit,) = hello["limits"]
    assert limit["source"] == "netdev"
    assert "no interface in this network namespace: 0000:" in limit["text"]


def test_a_real_pid_namespace() -> None:
    texts = [each["text"] for each in hello_in("unshare", "-p", "-f", "--mount-proc")["limits"]]
    assert texts[0].startswith("this is another pid namespace than the machine's")


def test_a_real_proc_with_hidepid() -> None:
    for path in (Path(sys.executable).resolve(), ROOT / "collectors"):
        if not all(part.stat().st_mode & 0o001 for part in path.parents):
            pytest.skip(f"nobody may not enter {path}")
    texts = [each["text"] for each in hello_in("unshare", "-m", *_HIDEPID, *_NOBODY)["limits"]]
    assert any("/proc hides the processes of other accounts (hidepid=" in text for text in texts)


def test_a_real_proc_that_is_read_only_costs_nothing() -> None:
    there = hello_in("unshare", "-m", *_READ_ONLY)
    here = hello_in("env")
    assert there.get("limits") == here.get("limits")
    assert there["blocks"] == here["blocks"]
