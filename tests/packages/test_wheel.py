"""The wheel from the package index: pip with and without extras, uv and pipx."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

import pytest

import fabmon
from tests.unit.recording.builders import quiet_ticks, write

VERSION = f"fabmon, version {fabmon.__version__}\n"
EXTRAS = "parquet,gnmi,snmp,mcp"


def installed(home: Path, what: str) -> Path:
    """The programs of a new environment, into which pip has installed `what`."""
    venv.create(home, with_pip=True)
    argv = [str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", what]
    subprocess.run(argv, check=True, capture_output=True)
    return home / "bin"


@pytest.mark.timeout(600)
def test_pip_installs_it_and_a_missing_extra_is_named(wheel: Path, tmp_path: Path) -> None:
    programs = installed(tmp_path / "plain", str(wheel))
    assert subprocess.check_output([programs / "fabmon", "--version"], text=True) == VERSION
    write(tmp_path / "a.fabrec", quiet_ticks(3))
    export = ["export", "a.fabrec", "--format", "parquet", "-o", "a.parquet"]
    argv = [str(programs / "fabmon"), *export]
    done = subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "extra fabmon[parquet]" in done.stderr


@pytest.mark.timeout(600)
def test_extras_work_when_they_are_asked_for(wheel: Path, tmp_path: Path) -> None:
    programs = installed(tmp_path / "extras", f"{wheel}[{EXTRAS}]")
    write(tmp_path / "a.fabrec", quiet_ticks(3))
    export = ["export", "a.fabrec", "--format", "parquet", "-o", "a.parquet"]
    subprocess.run([programs / "fabmon", *export], cwd=tmp_path, check=True)
    assert (tmp_path / "a.parquet").read_bytes().startswith(b"PAR1")
    needed = "import grpc, mcp, pygnmi.spec.v080.gnmi_pb2, pysnmp.hlapi.v3arch.asyncio"
    subprocess.run([programs / "python", "-c", needed], check=True)


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("tool", "argv"), [("uv", ["uv", "tool", "install"]), ("pipx", ["pipx", "install"])]
)
def test_it_is_installed_as_a_tool(
    tool: str, argv: list[str], wheel: Path, tmp_path: Path, clean_home: dict[str, str]
) -> None:
    programs = installed(tmp_path / "tool", tool)
    argv = [str(programs / argv[0]), *argv[1:], "--python", sys.executable, str(wheel)]
    subprocess.run(argv, env=clean_home, check=True, capture_output=True)
    program = tmp_path / ".local" / "bin" / "fabmon"
    assert subprocess.check_output([program, "--version"], text=True) == VERSION
