"""The container image: its file is sound for a linter, and what `make image` makes runs."""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
from pathlib import Path
from typing import Any

import pytest

import fabmon
from release.wheels import ROOT
from tests import requirements
from tests.packages import chroot

CONTAINERFILE = ROOT / "release" / "image" / "Containerfile"


def test_its_file_is_sound() -> None:
    hadolint = ROOT / ".venv-release" / "bin" / "hadolint"
    requirements.need("hadolint", hadolint.exists(), "make test-packages")
    done = subprocess.run(
        [str(hadolint), str(CONTAINERFILE)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


@pytest.mark.timeout(1500)
def test_it_runs_as_a_user_without_rights(deb: Path, tmp_path: Path) -> None:
    requirements.need_root()
    requirements.need_command("buildah", "buildah")
    requirements.need_command("mmdebstrap", "mmdebstrap")
    image = tmp_path / "image.tar"
    subprocess.run(
        [str(ROOT / "release" / "image" / "make.sh"), str(deb), str(image)],
        cwd=tmp_path,
        env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000", "SUITE": chroot.codename()},
        capture_output=True,
        check=True,
    )
    root = tmp_path / "root"
    unpack(image, root)
    assert chroot.run(root, "fabmon --version") == f"fabmon, version {fabmon.__version__}\n"
    user = "setpriv --reuid 1000 --regid 1000 --clear-groups env HOME=/home/user"
    assert "28/28 nodes up" in chroot.run(root, f"cd /work; {user} fabmon demo --once")


def unpack(image: Path, root: Path) -> None:
    """Unpack the one layer of an OCI archive, and check what a container runs."""
    root.mkdir()
    with tarfile.open(image) as archive:
        index = _json(archive, "index.json")
        manifest = _blob(archive, index["manifests"][0]["digest"])
        config = _blob(archive, manifest["config"]["digest"])["config"]
        assert (config["Entrypoint"], config["User"]) == (["fabmon"], "1000")
        (layer,) = manifest["layers"]
        with tarfile.open(fileobj=archive.extractfile(_path(layer["digest"]))) as files:
            files.extractall(root, filter="fully_trusted")


def _path(digest: str) -> str:
    return f"./blobs/{digest.replace(':', '/')}"


def _blob(archive: tarfile.TarFile, digest: str) -> Any:
    return _json(archive, _path(digest).removeprefix("./"))


def _json(archive: tarfile.TarFile, name: str) -> Any:
    file = archive.extractfile(f"./{name}")
    assert file is not None
    return json.loads(file.read())
