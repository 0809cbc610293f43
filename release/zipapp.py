"""`fabmon.pyz`, one file with everything: `python -m release.zipapp WHEEL OUT [TARGET ...]`."""

from __future__ import annotations

import hashlib
import json
import stat
import sys
import time
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from release import launcher
from release.wheels import GLIBC, WheelsMissing, build_time_s, download, target_named, targets

SHEBANG = b"#!/usr/bin/env python3\n"


def write_zipapp(
    out: Path,
    version: str,
    wheels: Mapping[str, Sequence[Path]],
    missing: Mapping[str, str],
) -> None:
    """Write the file, with mode 0755.

    `wheels` are those of each target; `missing` says why other targets have none. Every time in
    the file is SOURCE_DATE_EPOCH, so that two of the same wheels are the same bytes.
    """
    contents = {path.name: path for paths in wheels.values() for path in paths}
    digests = {
        name: hashlib.sha256(path.read_bytes()).hexdigest() for name, path in contents.items()
    }
    manifest = {
        "version": version,
        "glibc": GLIBC,
        "targets": {
            target: [[name, digests[name]] for name in sorted(path.name for path in paths)]
            for target, paths in sorted(wheels.items())
        },
        "missing": dict(missing),
    }
    with out.open("wb") as file:
        file.write(SHEBANG)
        with zipfile.ZipFile(file, "w") as archive:
            archive.writestr(_entry("__main__.py"), Path(launcher.__file__).read_bytes())
            archive.writestr(_entry("manifest.json"), json.dumps(manifest, indent=1))
            for name, path in sorted(contents.items()):
                archive.writestr(_entry(f"wheels/{name}"), path.read_bytes())
    out.chmod(0o755)


def _entry(name: str) -> zipfile.ZipInfo:
    entry = zipfile.ZipInfo(name, time.gmtime(build_time_s())[:6])
    entry.external_attr = (stat.S_IFREG | 0o644) << 16
    return entry


def main() -> None:
    """Make the file for all targets, or for those that are named; say which have no wheels."""
    wheel, out = Path(sys.argv[1]), Path(sys.argv[2])
    chosen = [target_named(name) for name in sys.argv[3:]] or targets()
    found: dict[str, list[Path]] = {}
    missing: dict[str, str] = {}
    for target in chosen:
        try:
            directory = Path("build/wheels") / target.name
            found[target.name] = [wheel, *download(target, directory)]
        except WheelsMissing as error:
            missing[target.name] = str(error)
            print(f"left out: {target.name}: {error}", file=sys.stderr)
    if not found:
        sys.exit("no target has all wheels")
    version = wheel.name.split("-")[1]
    write_zipapp(out, version, found, missing)
    print(f"{out}: {out.stat().st_size / 1e6:.0f} MB, for {', '.join(found)}")


if __name__ == "__main__":
    main()
