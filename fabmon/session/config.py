"""Reads fabmon.toml over the defaults. Unknown keys and values out of range are refused."""

from __future__ import annotations

import difflib
import math
import os
import re
import stat
import tomllib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import msgspec

from fabmon import toml_text
from fabmon.alerts.settings import AlertsConfig, SettingError
from fabmon.alerts.settings import check as check_alerts
from fabmon.analysis.causes import CAUSES, Thresholds
from fabmon.analysis.iteration.model_arithmetic import JobHints
from fabmon.analysis.iteration.model_table import ModelError, ModelTable, job_hints
from fabmon.fabric.hosts.host_line import Bad
from fabmon.fabric.input_files import read_input
from fabmon.fabric.roles.rules import MANAGEMENT_PORTS, RoleRules, overrides
from fabmon.fabric.routing_mode import ConfiguredMode
from fabmon.fabric.time_window import TimeWindow
from fabmon.fabric.topology.plan import Topology, TopologyError
from fabmon.fabric.topology.plan_files import load as load_plan
from fabmon.fabric.topology.routing import check_pattern
from fabmon.fabric.topology.toml_plan import Table
from fabmon.fabric.wording import Unit, file_error
from fabmon.session.errors import UsageError
from fabmon.toml_text import line_of

_MAX_FILE_BYTES = 1 << 24

ThemeName = Annotated[
    Literal["auto", "dark", "light"], msgspec.Meta(description="auto, dark or light, in quotes")
]
UnitName = Annotated[Unit, msgspec.Meta(description='"Gb/s", "GB/s" or "%"')]
WindowName = Annotated[
    TimeWindow, msgspec.Meta(description="tick, max, mean, minute or step, in quotes")
]
Share = Annotated[int, msgspec.Meta(ge=0, le=70, description="0, or 20 to 70 percent")]
KeyNames = str | list[str]
Minutes = Annotated[float, msgspec.Meta(ge=0, le=1440, description="0 to 1440 minutes")]


class PrometheusConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table [prometheus] of fabmon.toml."""

    match: tuple[str, ...] = ()
    node_label: str = "instance"
    token_file: str | None = None
    password_file: str | None = None
    ca_file: str | None = None
    insecure: bool = False
    tenant: str | None = None
    history_minutes: Minutes = 15.0


class RecordingConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table [recording] of fabmon.toml."""

    ring: str = "128MB"
    directory: str | None = None


class JobsConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table [jobs] of fabmon.toml."""

    squeue: str = "squeue"
    kubectl: str = "kubectl"


class ScreenConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The table [screen] of fabmon.toml; None: not set, so that what the screen kept applies."""

    theme: ThemeName | None = None
    palette: str | None = None
    metric: str | None = None
    units: UnitName | None = None
    digits: bool | None = None
    window: WindowName | None = None
    findings_share: Share | None = None
    remember: bool = True


Interval = Annotated[float, msgspec.Meta(ge=0.1, le=3600, description="0.1 to 3600 seconds")]
Color = Annotated[
    Literal["auto", "truecolor", "256", "16", "none"],
    msgspec.Meta(description="auto, truecolor, 256, 16 or none, in quotes"),
]


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Every key of fabmon.toml; config/fabmon.example.toml explains them."""

    thresholds: Thresholds
    interval_s: Interval = 1.0
    color: Color = "auto"
    management_ports: tuple[str, ...] = MANAGEMENT_PORTS
    roles: dict[str, str] = {}
    ssh_config: str | None = None
    topology: Table = Table()
    routing: dict[str, ConfiguredMode] = {}
    prometheus: PrometheusConfig = PrometheusConfig()
    recording: RecordingConfig = RecordingConfig()
    alerts: AlertsConfig = AlertsConfig()
    jobs: JobsConfig = JobsConfig()
    screen: ScreenConfig = ScreenConfig()
    keys: dict[str, KeyNames] = {}
    model: ModelTable = ModelTable()

    @property
    def role_rules(self) -> RoleRules:
        """The configured roles of ports."""
        return RoleRules(self.management_ports, overrides(self.roles))

    @property
    def hints(self) -> JobHints | None:
        """What is said of the model that is trained; None if nothing. Raises ModelError, not for
        what load() returned."""
        return job_hints(self.model)


def load(path: Path | None, model: Path | None = None) -> Config:
    """The configuration of `path`; without one that of the user's file, if it exists. A file
    `model` has the keys of the table [model], in its place.

    Raises UsageError with the file, the line, the key and the most similar known key.
    """
    file = read_file(path)
    defaults = {"thresholds": _toml(_read(_thresholds_file()), _thresholds_file())}
    config = _convert(_merged(defaults, file.values), file)
    if model is None:
        return config
    own = msgspec.structs.replace(read_file(model), table="model")
    table = _convert({**defaults, "model": own.values}, own).model
    return msgspec.structs.replace(config, model=table)


class ConfigFile(msgspec.Struct, frozen=True):
    """A configuration file: its text, and its values as TOML has them; empty without a file.

    `table` is the one whose keys it has, empty for all tables.
    """

    path: Path
    text: str = ""
    values: dict[str, Any] = {}
    table: str = ""

    def place(self, keys: Sequence[str]) -> str:
        """`fabmon.toml:12`: where a key is, else where its table is."""
        line = line_of(self.text, keys[1:] if self.table else keys)
        return f"{self.path}:{line}" if line else str(self.path)


def read_file(path: Path | None) -> ConfigFile:
    """The file `path`; without one the user's file, empty if it does not exist.

    Raises UsageError, also where the user's is no file.
    """
    if path is None:
        path = user_file()
        try:
            is_file = stat.S_ISREG(path.stat().st_mode)
            if not is_file and not path.samefile(os.devnull):
                raise UsageError(f"{path}: not a file: remove it")
        except (FileNotFoundError, NotADirectoryError):
            return ConfigFile(path)
        except OSError as error:
            raise UsageError(
                f"{path}: {file_error(error)}; --config names another file, /dev/null for none"
            ) from None
    text = _read(path)
    return ConfigFile(path, text, _toml(text, path))


def load_topology(settings: Config, config: Path | None, paths: Sequence[Path] = ()) -> Topology:
    """What the topology files and the tables [topology] and [routing] describe. Raises
    UsageError."""
    file = config or user_file()
    for pattern in settings.routing:
        try:
            check_pattern(pattern)
        except Bad as bad:
            raise UsageError(f"{file}: [routing]: {pattern!r}: {bad.text}: {bad.fix}") from None
    try:
        plan = load_plan(settings.topology, file, paths)
    except TopologyError as error:
        raise UsageError(str(error)) from None
    return msgspec.structs.replace(plan, routing=dict(settings.routing))


def user_file() -> Path:
    """Path of the user's configuration: `$XDG_CONFIG_HOME/fabmon/fabmon.toml`."""
    home = os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config"
    return Path(home) / "fabmon" / "fabmon.toml"


def _thresholds_file() -> Path:
    """Path of thresholds.toml: next to this module if installed, else config/ of the checkout."""
    installed = Path(__file__).with_name("thresholds.toml")
    checkout = Path(__file__).parents[2] / "config" / "thresholds.toml"
    return installed if installed.is_file() else checkout


def _read(path: Path) -> str:
    try:
        data = read_input(path, _MAX_FILE_BYTES, names_commands=lambda text: True)
        return data.decode("utf-8-sig")
    except OSError as error:
        raise UsageError(f"{path}: {file_error(error)}") from None
    except UnicodeDecodeError:
        raise UsageError(f"{path}: not UTF-8 text") from None


def _toml(text: str, path: Path) -> dict[str, Any]:
    try:
        return toml_text.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"{path}: {error}") from None


def _merged(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    merged = dict(base)
    for key, value in over.items():
        below = merged.get(key)
        both = isinstance(below, dict) and isinstance(value, dict)
        merged[key] = _merged(below or {}, value) if both else value
    return merged


def _convert(values: dict[str, Any], file: ConfigFile) -> Config:
    try:
        found = msgspec.convert(values, Config)
        # nan passes every range check, because comparisons with it are false.
        for place, value in _numbers(values):
            if math.isnan(value):
                raise msgspec.ValidationError(f"nan is not a number here - at `$.{place}`")
        overrides(found.roles)
    except msgspec.ValidationError as error:
        where = file.place(_path_of(str(error)))
        raise UsageError(f"{where}: {error}{_hint(str(error))}") from None
    except ValueError as error:
        raise UsageError(f"{file.place(['roles'])}: [roles] {error}") from None
    try:
        check_alerts(found.alerts, CAUSES)
    except SettingError as error:
        raise UsageError(f"{file.place(['alerts', *error.keys])}: [alerts] {error}") from None
    try:
        job_hints(found.model)
    except ModelError as error:
        raise UsageError(f"{file.place(['model', error.key])}: [model] {error}") from None
    # Only a file with these tables needs the modules of the screen.
    if file.values.get("screen") or found.keys:
        from fabmon.session.screen_values import check_keys, check_names

        check_names(msgspec.structs.asdict(found.screen), file.place)
        check_keys(found.keys, file.place)
    return found


def _path_of(message: str) -> list[str]:
    """The key that an error is about, from the table down."""
    place = re.search(r"at `\$\.?([A-Za-z0-9_.]*)", message)
    field = re.search(r"unknown field `(.+?)`", message)
    path = [part for part in (place[1] if place else "").split(".") if part]
    return [*path, field[1]] if field else path


def _numbers(values: dict[str, Any], before: str = "") -> Iterator[tuple[str, float]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from _numbers(value, f"{before}{key}.")
        elif isinstance(value, float):
            yield f"{before}{key}", value


def _hint(message: str) -> str:
    """What to add to an error: the most similar key of the table, or the range of the value."""
    _, _, rest = message.partition("unknown field `")
    unknown = rest.partition("`")[0]
    if not unknown:
        return _range(message)
    keys = [each.name for each in _fields(_kind_at(_path_of(message)[:-1]))]
    near = difflib.get_close_matches(unknown, sorted(keys), n=1)
    return f"; did you mean `{near[0]}`?" if near else ""


def _range(message: str) -> str:
    """The permitted values of the key that the message names; empty if unknown."""
    kind = _kind_at(_path_of(message))
    # An optional key is a union of its annotated type and None.
    said = [
        meta.description
        for each in (kind, *get_args(kind))
        for meta in get_args(each)[1:]
        if isinstance(meta, msgspec.Meta)
    ]
    return f": write {said[0]}" if said else ""


def _kind_at(path: Sequence[str]) -> Any:
    """The type of the value that is at some keys; None if unknown."""
    kind: Any = Config
    for key in path:
        kind = next((each.type for each in _fields(kind) if each.name == key), None)
    return kind


def _fields(kind: Any) -> Sequence[msgspec.structs.FieldInfo]:
    """The keys of a table; none of another type."""
    is_table = isinstance(kind, type) and issubclass(kind, msgspec.Struct)
    return msgspec.structs.fields(kind) if is_table else ()
