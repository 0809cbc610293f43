"""The Debian package: lintian, and installed into a Debian made for it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

import fabmon
from release.deb import UNITS
from tests import requirements
from tests.packages import chroot

pytestmark = pytest.mark.timeout(900)
NODES = "gpu001 gpu002 gpu003"
OVER_SSH = """
mkdir -p /run/sshd ~/.ssh
ssh-keygen -q -t ed25519 -N '' -f ~/.ssh/id_ed25519
cp ~/.ssh/id_ed25519.pub ~/.ssh/authorized_keys
echo "[127.0.0.1]:2299 $(cat /etc/ssh/ssh_host_ed25519_key.pub)" > ~/.ssh/known_hosts
/usr/sbin/sshd -o ListenAddress=127.0.0.1:2299 -o PermitRootLogin=yes
for try in 1 2 3 4 5 6 7 8 9 10; do
  (exec 3<>/dev/tcp/127.0.0.1/2299) 2>/dev/null && break; sleep 0.3
done
echo 'node1 address=127.0.0.1 port=2299' > /tmp/over-ssh.txt
fabmon --hosts /tmp/over-ssh.txt --once --format json
"""


@pytest.fixture(scope="module")
def installed(deb: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Debian into which dpkg has installed the package."""
    root = tmp_path_factory.mktemp("debian") / "root"
    chroot.make(root, *chroot.INCLUDED, "adduser", "zlib1g", "libstdc++6")
    (root / "tmp" / deb.name).write_bytes(deb.read_bytes())
    chroot.run(root, f"dpkg --install /tmp/{deb.name}")
    (root / "root" / "hosts.txt").write_text("gpu[001-003]\n")
    return root


def test_lintian_has_no_error_and_no_warning(deb: Path) -> None:
    requirements.need_command("lintian", "lintian")
    argv = ["lintian", "--allow-root", "--fail-on", "error,warning", str(deb)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_it_runs(installed: Path) -> None:
    assert chroot.run(installed, "fabmon --version") == f"fabmon, version {fabmon.__version__}\n"
    assert "28/28 nodes up" in chroot.run(installed, "fabmon demo --once")
    assert "python3 -I" in chroot.run(installed, "head -1 /usr/bin/fabmon")


def test_it_reads_a_node_over_a_real_sshd(installed: Path) -> None:
    report = json.loads(chroot.run(installed, OVER_SSH))
    assert report["tick"]["nodes_up"] == 1
    assert {link["node"] for link in report["tick"]["links"]} <= {"node1"}


def test_man_shows_its_manual(installed: Path) -> None:
    text = chroot.run(installed, "man fabmon; man fabmon-watch; whatis fabmon-record")
    assert "NAME\n       fabmon  -" in text or "NAME\n       fabmon -" in text
    assert "--metrics" in text
    assert "record without a screen" in text.lower()


@pytest.mark.parametrize(
    "script",
    [
        """bash -ic 'source /usr/share/bash-completion/bash_completion; _completion_loader fabmon
            COMP_WORDS=(fabmon --host gpu) COMP_CWORD=2; _fabmon_completion fabmon
            echo "${COMPREPLY[@]}"' 2>/dev/null""",
        "fish -c \"complete -C 'fabmon --host gpu'\"",
        """zsh -c 'autoload -Uz compinit; compinit -u; compadd() { print -l $completions }
            words=(fabmon --host gpu) CURRENT=3; $_comps[fabmon]'""",
    ],
    ids=["bash", "fish", "zsh"],
)
def test_nodes_of_the_hosts_file_are_completed(script: str, installed: Path) -> None:
    words = chroot.run(installed, f"cd /root; {script}").split()
    assert [word for word in words if word.startswith("gpu")] == NODES.split()


def test_its_units_are_there_and_not_enabled_and_its_user_exists(installed: Path) -> None:
    for unit in UNITS:
        assert (installed / "usr/lib/systemd/system" / f"{unit}.service").exists()
        assert not list((installed / "etc/systemd").rglob(f"{unit}.service"))
    assert chroot.run(installed, "getent passwd fabmon").startswith("fabmon:x:")


def test_it_is_removed_completely(installed: Path) -> None:
    left = chroot.run(
        installed,
        "cp -a /var/lib/dpkg /tmp/dpkg; dpkg --purge fabmon >/dev/null;"
        "ls -d /usr/lib/fabmon /usr/bin/fabmon 2>/dev/null || true;"
        "dpkg --install /tmp/*.deb >/dev/null",
    )
    assert left == ""
