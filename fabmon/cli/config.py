"""Configuration: the defaults, then the file, then the command line. Unknown keys are refused."""

from __future__ import annotations

import difflib
import os
import tomllib
from pathlib import Path
from typing import Any

import msgspec

from fabmon.analysis.thresholds import Thresholds
from fabmon.cli.engine import EngineConfig
from fabmon.cli.errors import UsageError
from fabmon.fabric.build import MANAGEMENT_PORTS


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Every key of fabmon.toml; config/fabmon.example.toml explains them."""

    thresholds: Thresholds
    interval_s: float = 1.0
    color: str = "auto"
    management_ports: tuple[str, ...] = MANAGEMENT_PORTS
    ssh_config: str | None = None
    prometheus: EngineConfig = EngineConfig()


def load(path: Path | None) -> Config:
    """The configuration from `path`, else from the user's file, if there is one.

    Raises UsageError with the file, the key and the nearest right one.
    """
    given = path if path is not None else user_file()
    defaults = {"thresholds": _toml(_thresholds_file())}
    if path is None and not given.is_file():
        return _convert(defaults, given)
    return _convert(_merged(defaults, _toml(given)), given)


def user_file() -> Path:
    """Where a user's configuration lies: `$XDG_CONFIG_HOME/fabmon/fabmon.toml`."""
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(home) / "fabmon" / "fabmon.toml"


def _thresholds_file() -> Path:
    """config/thresholds.toml: beside this module when installed, else in the checkout."""
    installed = Path(__file__).with_name("thresholds.toml")
    checkout = Path(__file__).parents[2] / "config" / "thresholds.toml"
    return installed if installed.is_file() else checkout


def _toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UsageError(f"{path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: not UTF-8 text") from None
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: {error}") from None


def _merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        both = isinstance(below, dict) and isinstance(value, dict)
        merged[key] = _merged(below or {}, value) if both else value
    return merged


def _convert(values: dict[str, Any], path: Path) -> Config:
    try:
        return msgspec.convert(values, Config)
    except msgspec.ValidationError as error:
        raise UsageError(f"{path}: {error}{_hint(str(error))}") from None


def _hint(message: str) -> str:
    """Did you mean: the nearest known key to the one that was refused."""
    _, _, rest = message.partition("unknown field `")
    unknown = rest.partition("`")[0]
    near = difflib.get_close_matches(unknown, sorted(_keys(Config)), n=1) if unknown else []
    return f"; did you mean `{near[0]}`?" if near else ""


def _keys(struct: type[msgspec.Struct]) -> set[str]:
    keys: set[str] = set()
    for field in msgspec.structs.fields(struct):
        keys.add(field.name)
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            keys |= _keys(field.type)
    return keys
