"""Which columns of a block may predict which: those of an object are similar to those of the first
object with the same metrics."""

from __future__ import annotations

from collections.abc import Sequence
from operator import attrgetter
from typing import NamedTuple

import numpy as np

from fabmon.fabric.wire.messages import Hello
from fabmon.recording.format.block import HEAD_COLUMNS, MONO, WALL
from fabmon.recording.format.predictions import IndexArray, PredictionChoice

_UNIT_COLUMNS = 1024
"""The most columns of one object that may predict each other."""

_Names = tuple[str, ...]
_Kind = tuple[tuple[str, tuple[_Names, ...]], ...]
"""Of each block of a node its source, and the metrics of its objects."""

_metrics = attrgetter("metrics")


class _Columns(NamedTuple):
    """The columns of a node: `units` are counted from its first unit; of `likes` those of clocks
    (`is_clock`) are counted from its first column, the others are columns of the block."""

    units: IndexArray
    likes: IndexArray
    is_clock: IndexArray


def prediction_choice(hellos: Sequence[Hello]) -> PredictionChoice:
    """The choice for the adjacent columns of the frames of some nodes."""
    units: list[IndexArray] = []
    likes: list[IndexArray] = []
    firsts: dict[tuple[str, _Names], int] = {}
    # Most nodes are of few kinds: all objects of a thousand nodes would take 0.1 s.
    of_kind: dict[_Kind, _Columns] = {}
    column = unit = 0
    for hello in hellos:
        kind = tuple((each.source, tuple(map(_metrics, each.objects))) for each in hello.blocks)
        columns = of_kind.get(kind)
        if columns is None:
            before = len(firsts)
            columns = _columns(kind, column, firsts)
            if len(firsts) == before:
                # No first object is among them: those of the next node are similar to the same.
                of_kind[kind] = columns
        units.append(columns.units + unit)
        likes.append(columns.likes + column * columns.is_clock)
        column += len(columns.units)
        unit += 1 + int(columns.units[-1])
    return PredictionChoice(_joined(units), _joined(likes))


def _columns(kind: _Kind, column: int, firsts: dict[tuple[str, _Names], int]) -> _Columns:
    """The columns of a node whose first one is `column`. Adds to `firsts`, the first columns of the
    first objects by source and metrics."""
    unit = 0
    units = [unit] * HEAD_COLUMNS
    likes = [-1] * WALL + [MONO]
    clocks = [WALL]
    for source, objects in kind:
        unit += 1
        clocks.append(len(units))
        units.append(unit)
        likes.append(MONO)
        for metrics in objects:
            unit += 1
            start, width = column + len(units), len(metrics)
            first = firsts.setdefault((source, metrics), start)
            if width <= _UNIT_COLUMNS:
                units += [unit] * width
            else:
                # A column is read after all that predict it, one after the other.
                units += [unit + place // _UNIT_COLUMNS for place in range(width)]
                unit += width // _UNIT_COLUMNS
            likes += [-1] * width if first == start else range(first, first + width)
    is_clock = np.zeros(len(units), np.intp)
    is_clock[clocks] = 1
    return _Columns(np.array(units, np.intp), np.array(likes, np.intp), is_clock)


def _joined(parts: list[IndexArray]) -> IndexArray:
    return np.concatenate(parts) if parts else np.empty(0, np.intp)
