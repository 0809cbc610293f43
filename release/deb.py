"""The Debian package: `python -m release.deb WHEEL OUT_DIRECTORY [TARGET]`.

Debian has no msgspec, and only releases of aiohttp, asyncssh, numpy and textual that are older than
fabmon needs. The package therefore has the locked wheels, unpacked into /usr/lib/fabmon, where no
other program finds them. They are for one minor version of Python, on which the package depends.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from email.parser import HeaderParser
from email.utils import formatdate
from pathlib import Path

from fabmon.cli.completion import script_for
from fabmon.cli.main import cli
from fabmon.cli.manual import manual_pages
from release.launcher import modules_of
from release.wheels import GLIBC, ROOT, Target, build_time_s, download, target_named

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
COMPLETIONS = {
    "bash": "share/bash-completion/completions/fabmon",
    "zsh": "share/zsh/vendor-completions/_fabmon",
    "fish": "share/fish/vendor_completions.d/fabmon.fish",
}
UNITS = ("fabmon-agent", "fabmon-record", "fabmon-watch")
TEMPLATES = Path(__file__).parent / "debian"
CONFFILE = "etc/fabmon/fabmon.toml"
"""What dpkg keeps as the administrator has changed it. It sets nothing, so no update asks."""


def make_deb(
    wheels: list[Path], version: str, target: Target, tree: Path, out: Path, *, compression: str
) -> Path:
    """Write the package of a target's wheels into the directory `out`; returns its path.

    `tree` is a new directory for its files. `compression` is one of dpkg-deb's, such as `xz`. Every
    time in the package is SOURCE_DATE_EPOCH.
    """
    full = f"{version}-1+py{target.python}"
    architecture = ARCHITECTURES[target.machine]
    _modules(wheels, tree / "usr/lib/fabmon")
    _programs(tree / "usr")
    _documents(wheels, full, tree / "usr/share/doc/fabmon")
    _write(tree / CONFFILE, _template("fabmon.toml"))
    _write(tree / "usr/share/lintian/overrides/fabmon", _template("lintian-overrides"))
    _control(tree, full, target.python, architecture)
    _finish(tree)
    deb = out / f"fabmon_{full}_{architecture}.deb"
    argv = ["dpkg-deb", "--build", "--root-owner-group", f"-Z{compression}", str(tree), str(deb)]
    environment = {**os.environ, "SOURCE_DATE_EPOCH": str(build_time_s())}
    subprocess.run(argv, env=environment, check=True, stdout=subprocess.DEVNULL)
    return deb


def _modules(wheels: list[Path], into: Path) -> None:
    for path in wheels:
        with zipfile.ZipFile(path) as wheel:
            for parts, info in modules_of(wheel):
                _write(into.joinpath(*parts), wheel.read(info))


def _programs(usr: Path) -> None:
    """The command, its manual pages, completions and units."""
    _write(usr / "bin/fabmon", _template("fabmon"))
    for name, text in manual_pages():
        _write(usr / f"share/man/man1/{name}.gz", _gzip(text))
    for shell, path in COMPLETIONS.items():
        _write(usr / path, script_for(shell, cli))
    for unit in UNITS:
        _write(usr / f"lib/systemd/system/{unit}.service", _read(ROOT / f"config/{unit}.service"))


def _documents(wheels: list[Path], full: str, doc: Path) -> None:
    """Licences, changelogs, the documentation and examples."""
    _write(doc / "copyright", _template("copyright") + _licences(wheels))
    _write(doc / "changelog.gz", _gzip(_read(ROOT / "CHANGELOG.md")))
    entry = f"fabmon ({full}) unstable; urgency=medium\n\n  * See changelog.gz.\n\n"
    entry += f" -- {_maintainer()}  {formatdate(build_time_s(), localtime=False)}\n"
    _write(doc / "changelog.Debian.gz", _gzip(entry))
    for name in ("hosts.example.txt", "fabmon.example.toml", "thresholds.toml"):
        _write(doc / "examples" / name, _read(ROOT / "config" / name))
    for path in sorted(ROOT.glob("docs/*.md")):
        _write(doc / "docs" / path.name, _read(path))
    for folder in ("grafana", "prometheus"):
        for path in sorted((ROOT / "config" / folder).iterdir()):
            _write(doc / "examples" / folder / path.name, _read(path))


def _licences(wheels: list[Path]) -> str:
    """A paragraph of each wheel: name, version, and the licence that its metadata states."""
    text = ""
    for path in wheels:
        with zipfile.ZipFile(path) as wheel:
            (name,) = (each for each in wheel.namelist() if each.endswith(".dist-info/METADATA"))
            about = HeaderParser().parsestr(wheel.read(name).decode())
        classified = [
            each.rpartition(" :: ")[2]
            for each in about.get_all("Classifier", [])
            if each.startswith("License ::")
        ]
        licence = about["License-Expression"] or "; ".join(classified) or about["License"]
        home = f"usr/lib/fabmon/{name.partition('/')[0]}"
        text += f"\n{about['Name']} {about['Version']}: {licence}\n  in {home}\n"
    return text


def _control(tree: Path, full: str, python: str, architecture: str) -> None:
    """What dpkg reads: control, checksums and the scripts of an installation."""
    files = sorted(path for path in tree.rglob("*") if path.is_file())
    kilobytes = sum(-(-path.stat().st_size // 1024) for path in files)
    minor = int(python.partition(".")[2])
    depends = [
        f"python3 (>= {python}~)",
        f"python3 (<< 3.{minor + 1}~)",
        f"libc6 (>= {GLIBC[0]}.{GLIBC[1]})",
        *("libgcc-s1", "libstdc++6", "zlib1g", "adduser"),
    ]
    control = _template("control").format(
        version=full,
        architecture=architecture,
        maintainer=_maintainer(),
        depends=", ".join(depends),
        size=kilobytes,
    )
    sums = "".join(
        f"{hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()}  "
        f"{path.relative_to(tree)}\n"
        for path in files
        if path != tree / CONFFILE
    )
    _write(tree / "DEBIAN/control", control)
    _write(tree / "DEBIAN/conffiles", f"/{CONFFILE}\n")
    _write(tree / "DEBIAN/md5sums", sums)
    for script in ("postinst", "prerm", "postrm"):
        _write(tree / "DEBIAN" / script, _template(script))


def _finish(tree: Path) -> None:
    """Modes and times that depend on nothing but the commit."""
    programs = {"usr/bin/fabmon", "DEBIAN/postinst", "DEBIAN/prerm", "DEBIAN/postrm"}
    for path in [tree, *tree.rglob("*")]:
        runs = path.is_dir() or str(path.relative_to(tree)) in programs
        path.chmod(0o755 if runs else 0o644)
        os.utime(path, (build_time_s(), build_time_s()))


def _of_this_system() -> str:
    asked = "import platform, sys; print('cp%d%d-%s' % (*sys.version_info[:2], platform.machine()))"
    return subprocess.check_output(["/usr/bin/python3", "-c", asked], text=True).strip()


def _maintainer() -> str:
    """Who built it, as Debian's tools ask."""
    name = os.environ.get("DEBFULLNAME", "fabmon developers")
    return f"{name} <{os.environ.get('DEBEMAIL', 'fabmon@localhost')}>"


def _gzip(text: str) -> bytes:
    return gzip.compress(text.encode(), 9, mtime=0)


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


def _template(name: str) -> str:
    return _read(TEMPLATES / name)


def _write(path: Path, content: str | bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def main() -> None:
    """Make the package for a target, which is by default that of the system's Python."""
    wheel, out = Path(sys.argv[1]), Path(sys.argv[2])
    target = target_named(sys.argv[3] if len(sys.argv) > 3 else _of_this_system())
    tree = Path("build/deb").absolute()
    shutil.rmtree(tree, ignore_errors=True)
    wheels = [wheel, *download(target, Path("build/wheels-deb"))]
    print(make_deb(wheels, wheel.name.split("-")[1], target, tree, out, compression="xz"))


if __name__ == "__main__":
    main()
