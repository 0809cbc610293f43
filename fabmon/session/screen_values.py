"""Which values the choices of the screen can have, and the keys of the table [keys]."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Mapping, Sequence

from fabmon.fabric.time_window import TimeWindow
from fabmon.fabric.wording import Unit
from fabmon.session.errors import UsageError
from fabmon.tui.choices import AUTO, SHARES
from fabmon.tui.key_map import KeyMapError, mapped
from fabmon.tui.key_table import KEYS
from fabmon.tui.keys import Key
from fabmon.tui.metrics import METRIC_NAMES
from fabmon.tui.palette import RAMPS, Theme

VALUES: Mapping[str, Sequence[object]] = {
    "theme": (AUTO, *(theme.value for theme in Theme)),
    "palette": [ramp.name for ramp in RAMPS],
    "metric": METRIC_NAMES,
    "units": [unit.value for unit in Unit],
    "digits": (False, True),
    "window": [window.value for window in TimeWindow],
    "findings_share": (0, *SHARES),
}
"""Name in the table [screen] -> its values."""
Place = Callable[[Sequence[str]], str]
"""Returns where a key of the configuration is: `fabmon.toml:12`."""


def is_known(name: str, value: object) -> bool:
    """Whether a choice that was kept is one that this version has."""
    return any(value == each and type(value) is type(each) for each in VALUES.get(name, ()))


def key_table(keys: Mapping[str, str | Sequence[str]]) -> tuple[Key, ...]:
    """All keys, with those of the table [keys]. Raises KeyMapError."""
    if not keys:
        return KEYS
    lists = {name: [key] if isinstance(key, str) else key for name, key in keys.items()}
    return mapped(KEYS, lists)


def check_names(choices: Mapping[str, object], place: Place) -> None:
    """Raise UsageError with the line of a value that the screen does not have."""
    for name in ("palette", "metric"):
        value, names = choices.get(name), [str(each) for each in VALUES[name]]
        if value is not None and value not in names:
            near = difflib.get_close_matches(str(value), names, n=1)
            hint = f"did you mean {near[0]}?" if near else f"write one of {', '.join(names)}"
            where = place(["screen", name])
            raise UsageError(f"{where}: [screen] there is no {name} {value!r}: {hint}")

    share = choices.get("findings_share")
    if share is not None and share not in VALUES["findings_share"]:
        where = place(["screen", "findings_share"])
        raise UsageError(
            f"{where}: [screen] findings_share = {share}: write 0, or 20 to 70 percent"
        )


def check_keys(keys: Mapping[str, str | Sequence[str]], place: Place) -> None:
    """Raise UsageError with the line of a mapping that cannot be used."""
    try:
        key_table(keys)
    except KeyMapError as error:
        raise UsageError(f"{place(['keys', error.action])}: [keys] {error}") from None
