"""The Debian package: lintian, and installed into a Debian made for it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

import fabmon
from release.deb import UNITS
from tests import requirements
from tests.packages import chroot

pytestmark = pytest.mark.timeout(900)
NODES = "gpu001 gpu002 gpu003"


@pytest.fixture(scope="module")
def installed(deb: Path, debian: Path) -> Path:
    """A Debian into which dpkg has installed the package."""
    (debian / "tmp" / deb.name).write_bytes(deb.read_bytes())
    chroot.run(debian, f"dpkg --install /tmp/{deb.name}")
    (debian / "root" / "hosts.txt").write_text("gpu[001-003]\n")
    return debian


def test_lintian_has_no_error_and_no_warning(deb: Path) -> None:
    requirements.need_command("lintian", "lintian")
    argv = ["lintian", "--allow-root", "--fail-on", "error,warning", str(deb)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


def test_it_runs(installed: Path) -> None:
    assert chroot.run(installed, "fabmon --version") == f"fabmon, version {fabmon.__version__}\n"
    assert "28/28 nodes up" in chroot.run(installed, "fabmon demo --once")
    assert "python3 -I" in chroot.run(installed, "head -1 /usr/bin/fabmon")


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
