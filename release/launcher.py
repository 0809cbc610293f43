"""What `fabmon.pyz` runs first: unpack the wheels for this Python into the user's cache, once.

The archive has `manifest.json` and the wheels of every target. This module needs nothing but the
standard library, and Python 3.6 understands it, so that an older one gets a clear error.
"""

import contextlib
import hashlib
import io
import json
import os
import platform
import shutil
import stat
import sys
import sysconfig
import tempfile
import zipfile
from typing import Any, Dict, Iterator, List, Tuple

LISTED = "FILES.json"
"""In the cache: [path, size, time of change in ns] of each file that was unpacked."""
NOT_UNPACKED = ("scripts", "data", "headers")


class Refused(Exception):
    """Why fabmon cannot be run from this file, in one line, with what to do."""


def target(manifest: Dict[str, Any]) -> str:
    """The name of the target that this Python is. Raises Refused if there are no wheels for it."""
    python, machine = ".".join(map(str, sys.version_info[:2])), platform.machine()
    name = "cp{}-{}".format(python.replace(".", ""), machine)
    has = ", ".join(sorted(manifest["targets"]))
    if sys.platform != "linux" or sys.maxsize < 2**32:
        raise Refused("it needs 64-bit Linux; on other systems: pip install fabmon")
    if sys.implementation.name != "cpython" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        raise Refused("it needs CPython, and not a free-threaded one: python3.12 " + sys.argv[0])
    if name in manifest["missing"]:
        raise Refused("there are no wheels for {}: {}".format(name, manifest["missing"][name]))
    if name not in manifest["targets"]:
        raise Refused(
            f"it has no wheels for Python {python} on {machine}, only for {has}: name another"
            f" Python, as in python3.12 {sys.argv[0]}"
        )
    try:
        libc = os.confstr("CS_GNU_LIBC_VERSION") or ""
    except (ValueError, OSError):
        libc = ""
    needed = tuple(manifest["glibc"])
    if not libc.startswith("glibc ") or _numbers(libc.split()[1]) < needed:
        text = "it needs glibc {}.{} or newer, and this machine has {}: pip install fabmon"
        raise Refused(text.format(needed[0], needed[1], libc or "another C library"))
    return name


def _numbers(version: str) -> "tuple[int, ...]":
    return tuple(int(part) for part in version.split(".")[:2])


def cache_directory() -> str:
    """The directory of all unpacked versions, which only the user can read or write."""
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    if not os.path.isabs(home):
        raise Refused("there is no cache directory: set XDG_CACHE_HOME to an absolute path")
    cache = os.path.join(home, "fabmon-zipapp")
    try:
        os.makedirs(home, 0o700, exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.mkdir(cache, 0o700)
    except OSError as error:
        text = "{}: {}; set XDG_CACHE_HOME to a directory of yours with 150 MB"
        raise Refused(text.format(error.filename, error.strerror)) from error
    _check_owner(cache)
    return cache


def _check_owner(directory: str) -> None:
    """Raise Refused for a directory that another user owns, may write to, or redirects."""
    found = os.lstat(directory)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.geteuid():
        raise Refused(f"{directory} is not a directory of yours: remove it")
    if found.st_mode & 0o077:
        raise Refused(f"{directory} is open to other users: rm -r {directory}")


def modules_of(wheel: zipfile.ZipFile) -> "Iterator[Tuple[List[str], zipfile.ZipInfo]]":
    """Where each file of a wheel belongs below a directory of modules. Scripts are left out."""
    for info in wheel.infolist():
        parts = info.filename.split("/")
        if parts[0].endswith(".data") and len(parts) > 2:
            if parts[1] in NOT_UNPACKED:
                continue
            parts = parts[2:]
        if not info.filename.endswith("/") and ".." not in parts and parts[0]:
            yield parts, info


def unpack(archive: zipfile.ZipFile, wheels: "List[List[str]]", into: str) -> None:
    """Unpack wheels, each [name, SHA-256], and list the files. Raises Refused for a damaged one."""
    listed = []
    for name, digest in wheels:
        try:
            content = archive.read("wheels/" + name)
        except (KeyError, zipfile.BadZipFile, EOFError, OSError) as error:
            raise Refused(f"this file is damaged: {name}: {error}") from error
        if hashlib.sha256(content).hexdigest() != digest:
            raise Refused(f"this file is damaged: {name} has another SHA-256")
        with zipfile.ZipFile(io.BytesIO(content)) as wheel:
            for parts, info in modules_of(wheel):
                path = os.path.join(into, *parts)
                os.makedirs(os.path.dirname(path), exist_ok=True)
                with open(path, "wb") as file:
                    file.write(wheel.read(info))
                found = os.stat(path)
                listed.append(["/".join(parts), found.st_size, found.st_mtime_ns])
    with open(os.path.join(into, LISTED), "w", encoding="utf-8") as file:
        json.dump(listed, file)


def check_unpacked(directory: str) -> None:
    """Raise Refused for a cache of another user, or one in which a file is not as unpacked."""
    _check_owner(directory)
    damaged = f"the cache is damaged: {{}}; it is made again after: rm -r {directory}"
    try:
        with open(os.path.join(directory, LISTED), encoding="utf-8") as file:
            listed = json.load(file)
        for name, size, changed_ns in listed:
            found = os.stat(os.path.join(directory, name))
            if (found.st_size, found.st_mtime_ns) != (size, changed_ns):
                raise Refused(damaged.format(f"{name} has changed"))
    except OSError as error:
        raise Refused(damaged.format(f"{error.filename}: {error.strerror}")) from error
    except (ValueError, TypeError):
        raise Refused(damaged.format(f"{LISTED} cannot be read")) from None


def modules(path: str) -> str:
    """The directory with the modules of the archive at `path`, unpacked now if it is not there.

    It is made beside its place and renamed, so that it is there completely or not at all. Raises
    Refused.
    """
    try:
        archive = zipfile.ZipFile(path)
        content = archive.read("manifest.json")
        manifest = json.loads(content.decode())
    except (OSError, KeyError, ValueError, zipfile.BadZipFile) as error:
        raise Refused(f"this file is damaged: {error}") from error
    with archive:
        name = target(manifest)
        digest = hashlib.sha256(content).hexdigest()[:16]
        cache = cache_directory()
        place = os.path.join(cache, "{}-{}-{}".format(manifest["version"], name, digest))
        if not os.path.lexists(place):
            sys.stderr.write(f"fabmon: unpacking, once, into {place}\n")
            made = tempfile.mkdtemp(prefix="unpacking-", dir=cache)
            try:
                unpack(archive, manifest["targets"][name], made)
                os.rename(made, place)
            except OSError as error:
                # Another fabmon may have been first: then its directory counts.
                if not os.path.isdir(place):
                    raise Refused(f"{error.filename or cache}: {error.strerror}") from error
            finally:
                shutil.rmtree(made, ignore_errors=True)
    check_unpacked(place)
    return place


def main() -> None:
    """Run fabmon from the archive that this module is in."""
    path = os.path.dirname(os.path.abspath(__file__))
    try:
        sys.path[0] = modules(path)
    except Refused as error:
        sys.stderr.write(f"fabmon: {os.path.basename(path)}: {error}\n")
        sys.exit(1)
    from fabmon.cli.main import main as run

    run()


if __name__ == "__main__":
    main()
