"""The wheel, the single file and the Debian package show the demo, and a node over sshd."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from release.wheels import Target, download
from tests.packages import chroot

pytestmark = pytest.mark.timeout(900)
OVER_SSH = """
mkdir -p /run/sshd ~/.ssh
rm -f ~/.ssh/id_ed25519; ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/id_ed25519
cp ~/.ssh/id_ed25519.pub ~/.ssh/authorized_keys
echo "[127.0.0.1]:2299 $(cat /etc/ssh/ssh_host_ed25519_key.pub)" > ~/.ssh/known_hosts
/usr/sbin/sshd -o ListenAddress=127.0.0.1:2299 -o PermitRootLogin=yes
for try in 1 2 3 4 5 6 7 8 9 10; do
  (exec 3<>/dev/tcp/127.0.0.1/2299) 2>/dev/null && break; sleep 0.3
done
echo 'node1 address=127.0.0.1 port=2299' > /tmp/over-ssh.txt
"""
ASK = "--hosts /tmp/over-ssh.txt --once --format json"


@pytest.mark.parametrize("kind", ["wheel", "zipapp", "deb"])
def test_it_reads_a_node(
    kind: str, debian: Path, wheel: Path, zipapp: Path, deb: Path, tmp_path: Path
) -> None:
    files = debian / "tmp" / kind
    files.mkdir()
    if kind == "wheel":
        version = chroot.run(
            debian, "python3 -c 'import sys; print(*sys.version_info[:2], sep=\".\")'"
        )
        machine = chroot.run(debian, "uname -m").strip()
        for each in [wheel, *download(Target(version.strip(), machine), tmp_path)]:
            shutil.copy(each, files)
        program = "/opt/venv/bin/fabmon"
        install = "python3 -m venv /opt/venv; /opt/venv/bin/pip -q install --no-index /tmp/wheel/*"
        chroot.run(debian, install)
    elif kind == "zipapp":
        shutil.copy(zipapp, files)
        program = f"python3 /tmp/zipapp/{zipapp.name}"
    else:
        shutil.copy(deb, files)
        chroot.run(debian, "dpkg --install /tmp/deb/*")
        program = "/usr/bin/fabmon"
    assert "28/28 nodes up" in chroot.run(debian, f"{program} demo --once")
    report = json.loads(chroot.run(debian, f"{OVER_SSH}\n{program} {ASK}"))
    assert report["tick"]["nodes_up"] == 1
    assert {link["node"] for link in report["tick"]["links"]} <= {"node1"}
