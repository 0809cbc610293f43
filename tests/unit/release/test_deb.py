"""The Debian package, unpacked: what is in it, and that its command, manual and completions work.

`make test-packages` also installs it, in a system made for that, and runs lintian.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

import fabmon
from fabmon.session.config import load
from release.deb import UNITS, make_deb
from release.wheels import ROOT
from tests import requirements
from tests.installed_wheels import HERE, PYTHON


@pytest.fixture(scope="module")
def deb(wheels: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    requirements.need_command("dpkg-deb", "dpkg")
    home = tmp_path_factory.mktemp("deb")
    return make_deb(wheels, fabmon.__version__, HERE, home / "tree", home, compression="none")


@pytest.fixture(scope="module")
def unpacked(deb: Path) -> Path:
    root = deb.parent / "root"
    subprocess.run(["dpkg-deb", "-x", str(deb), str(root)], check=True)
    return root


@pytest.fixture(scope="module")
def path(unpacked: Path) -> str:
    """A PATH where `fabmon` is the package's command, with the Python beneath these tests."""
    programs = unpacked.parent / "bin"
    programs.mkdir()
    (programs / "fabmon").write_text(
        f'#!/bin/sh\nexec {PYTHON} -I {unpacked}/usr/bin/fabmon "$@"\n'
    )
    (programs / "fabmon").chmod(0o755)
    return f"{programs}:/usr/bin:/bin"


def run(path: str, argv: list[str], home: Path) -> str:
    environment = {"PATH": path, "HOME": str(home), "LANG": "C.UTF-8", "PYTHONPATH": "/nowhere"}
    return subprocess.check_output(argv, cwd=home, env=environment, text=True)


def test_it_depends_on_the_python_that_its_wheels_are_for(deb: Path) -> None:
    control = subprocess.check_output(["dpkg-deb", "-f", str(deb)], text=True)
    minor = int(HERE.python.partition(".")[2])
    assert f"python3 (>= {HERE.python}~), python3 (<< 3.{minor + 1}~)" in control
    assert f"Version: {fabmon.__version__}-1+py{HERE.python}\n" in control
    assert deb.name.startswith(f"fabmon_{fabmon.__version__}-1+py{HERE.python}_")


def test_two_are_the_same_bytes(wheels: list[Path], deb: Path, tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        again = make_deb(
            wheels, fabmon.__version__, HERE, tmp_path / "tree", tmp_path, compression="none"
        )
    finally:
        os.umask(before)
    subprocess.run(["cmp", str(deb), str(again)], check=True)


def test_its_files_belong_to_root_and_only_programs_run(deb: Path) -> None:
    listed = subprocess.check_output(["dpkg-deb", "-c", str(deb)], text=True).splitlines()
    assert {line.split()[1] for line in listed} == {"root/root"}
    files = [line.split() for line in listed if line.startswith("-")]
    assert [words[5] for words in files if words[0] != "-rw-r--r--"] == ["./usr/bin/fabmon"]


def test_its_command_runs_with_its_own_modules(unpacked: Path, path: str, tmp_path: Path) -> None:
    interpreter = (unpacked / "usr/bin/fabmon").read_text().partition("\n")[0]
    assert interpreter == "#!/usr/bin/python3 -I"
    shown = run(path, ["fabmon", "--version"], tmp_path)
    assert shown == f"fabmon, version {fabmon.__version__}\n"


def test_its_completion_knows_the_nodes(unpacked: Path, path: str, tmp_path: Path) -> None:
    (tmp_path / "hosts.txt").write_text("gpu[001-003]\n")
    scripts = unpacked / "usr/share/bash-completion/completions"
    bash = f"""
        source {scripts}/fabmon
        COMP_WORDS=(fabmon --host gpu) COMP_CWORD=2
        _fabmon_completion fabmon
        echo "${{COMPREPLY[@]}}"
    """
    assert run(path, ["bash", "-c", bash], tmp_path).split() == ["gpu001", "gpu002", "gpu003"]


def test_its_manual_renders(unpacked: Path, path: str, tmp_path: Path) -> None:
    requirements.need_command("man", "man-db")
    for page, says in (("fabmon", "EXIT STATUS"), ("fabmon-watch", "--metrics")):
        text = run(path, ["man", "-M", str(unpacked / "usr/share/man"), page], tmp_path)
        assert says in text


def test_its_units_are_those_of_the_configuration(unpacked: Path) -> None:
    for unit in UNITS:
        installed = unpacked / "usr/lib/systemd/system" / f"{unit}.service"
        assert installed.read_bytes() == (ROOT / "config" / installed.name).read_bytes()
        assert (unpacked / "usr/bin/fabmon").exists()
        assert "ExecStart=/usr/bin/fabmon " in installed.read_text()


def test_its_conffile_sets_nothing(deb: Path, unpacked: Path, tmp_path: Path) -> None:
    listed = subprocess.check_output(["dpkg-deb", "--info", str(deb), "conffiles"], text=True)
    assert listed == "/etc/fabmon/fabmon.toml\n"
    (tmp_path / "empty.toml").touch()
    assert load(unpacked / "etc/fabmon/fabmon.toml") == load(tmp_path / "empty.toml")


def test_it_names_the_licence_of_every_wheel(unpacked: Path, wheels: list[Path]) -> None:
    text = (unpacked / "usr/share/doc/fabmon/copyright").read_text()
    named = [line for line in text.splitlines() if line.startswith("  in usr/lib/fabmon/")]
    assert len(named) == len(wheels)
    assert all((unpacked / line.split()[1]).is_dir() for line in named)
    assert ": None\n" not in text


def test_its_scripts_are_valid(deb: Path, tmp_path: Path) -> None:
    subprocess.run(["dpkg-deb", "-e", str(deb), str(tmp_path)], check=True)
    for script in ("postinst", "prerm", "postrm"):
        subprocess.run(["dash", "-n", str(tmp_path / script)], check=True)
        assert "fabmon-watch.service" in (tmp_path / script).read_text()
