"""Reads topology files of any format; the format is recognised from name and first lines."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from pathlib import Path

from fabmon.fabric.input_files import read_input
from fabmon.fabric.topology import csv_cables, ibnetdiscover, nccl, slurm, toml_plan
from fabmon.fabric.topology.plan import PlanProblem, Topology, TopologyError, joined
from fabmon.fabric.wording import file_error

_MAX_BYTES = 64 * 1024 * 1024
_SLURM = re.compile(r"^[ \t]*(SwitchName|BlockName)[ \t]*=", re.IGNORECASE | re.MULTILINE)
_IB = re.compile(
    r"^(# Topology file: generated|switchguid=|caguid="
    r'|Switch\s+\d+\s+"S-|(CA|SW)\s+\d+\s+\d+\s+0x)',
    re.MULTILINE,
)
_IBSIM = re.compile(r'^(Switch|Hca)\s+\d+\s+"(?![SHR]-[0-9a-f]{2,16}")', re.MULTILINE)
_SLURM_YAML = re.compile(r"^[ \t]*-[ \t]+topology[ \t]*:", re.MULTILINE)
_CSV = re.compile(r"^[^,;#=\[\n]+([,;])(?:(?!\1).)*\1(?:(?!\1).)+\1", re.MULTILINE)
_TOML = re.compile(r"^[ \t]*(\[topology[\].]|(\w+)[ \t]*=|\[\w+\])", re.MULTILINE)
_NCCL = re.compile(r"\s*(?:<\?xml[^>]{0,200}>\s*)?<(?:system|graphs)\b")
KINDS = (
    "TOML, CSV, Slurm's topology.conf or topology.yaml, ibnetdiscover's output, NCCL's topology XML"
)


def read(path: Path) -> Topology:
    """The topology of a file. Raises TopologyError, also if the file cannot be read."""
    name = str(path)
    try:
        data = read_input(path, _MAX_BYTES)
    except OSError as error:
        problem = PlanProblem(0, file_error(error), "")
        raise TopologyError(name, [problem]) from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        problem = PlanProblem(line, "a byte that is not UTF-8", "save the file as UTF-8")
        raise TopologyError(name, [problem]) from None
    return parse(text, name)


def parse(text: str, filename: str) -> Topology:
    """The topology of a file's text. Raises TopologyError."""
    return _parser(text, filename)(text, filename)


def kind_of(text: str) -> str:
    """Of which kind the text of a topology file is, or the beginning of one that has 64 KiB or
    more; empty for one that is none. Does not know CSV without a heading."""
    if _NCCL.match(text):
        return "NCCL's topology XML"
    if _IB.search(text):
        return "the output of ibnetdiscover"
    if _IBSIM.search(text):
        return "a network file of ibsim"
    if _SLURM_YAML.search(text):
        return "Slurm's topology.yaml"
    if _SLURM.search(text):
        return "Slurm's topology.conf"
    return "cables as CSV" if csv_cables.has_heading(text) else ""


def load(table: toml_plan.Table, config: Path, paths: Iterable[Path]) -> Topology:
    """The whole plan, the most trusted part first: the files `paths`, the table, the table's files.

    `table` is from the configuration file `config`; its files are relative to that. Raises
    TopologyError.
    """
    beside = [config.parent / Path(each).expanduser() for each in table.files]
    own = Topology()
    if table != toml_plan.Table():
        text = config.read_text(encoding="utf-8") if config.is_file() else ""
        own = toml_plan.of_table(table, str(config), text)
    return joined([*map(read, paths), own, *map(read, beside)])


def _parser(text: str, filename: str) -> Callable[[str, str], Topology]:
    suffix = Path(filename).suffix.lower()
    if suffix == ".toml":
        return toml_plan.parse
    if suffix == ".csv":
        return csv_cables.parse
    if suffix == ".xml" or text.lstrip().startswith("<"):
        return nccl.parse
    if _IBSIM.search(text) and not _IB.search(text):
        fix = "run ibsim with it, and save what ibnetdiscover prints"
        raise TopologyError(filename, [PlanProblem(0, "a network file of ibsim", fix)])
    for pattern, parser in (
        (_SLURM_YAML, slurm.parse_yaml),
        (_SLURM, slurm.parse),
        (_IB, ibnetdiscover.parse),
        (_CSV, csv_cables.parse),
        (_TOML, toml_plan.parse),
    ):
        if pattern.search(text):
            return parser
    raise TopologyError(filename, [PlanProblem(0, "not a known topology format", f"use {KINDS}")])
