"""Reads pickles that hold nothing but plain data, as PyTorch's Flight Recorder writes them.

A pickle is a program: pickle.loads() calls what the file names, and reserves what it asks for. Here
an instruction makes a number, a text, a list, a dictionary or a tuple, or the file is refused, and
there are only so many.
Instructions: https://docs.python.org/3/library/pickletools.html, protocols 2 to 5.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

MOST_VALUES = 1 << 22
"""Instructions of one pickle, each of which takes some 100 bytes beside the texts, and values that
it expands to, as what was kept may be used many times. A full dump, of 2000 collectives with 20
frames each, has half a million."""


class PickleError(ValueError):
    """The bytes are no pickle, a truncated one, or one that makes more than plain data."""


def plain_data(data: bytes) -> Any:
    """What a pickle holds. Raises PickleError."""
    try:
        value = _Reader(data).read()
        _check_size(value)
        return value
    except (IndexError, KeyError, TypeError, UnicodeDecodeError, struct.error) as error:
        raise PickleError(f"an invalid pickle: {type(error).__name__}: {error}") from None


def _check_size(value: Any) -> None:
    """Refuse a value that is small as long as its parts are shared, and endless when copied."""
    left, waiting = MOST_VALUES, [value]
    while waiting:
        each = waiting.pop()
        parts = each.values() if type(each) is dict else each
        if type(each) in (dict, list, tuple):
            left -= len(each)
            if left < 0:
                raise PickleError(f"a pickle of more than {MOST_VALUES:,} values")
            waiting += parts


class _Reader:
    """The stack machine of one pickle."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._stack: list[Any] = []
        self._marks: list[int] = []
        self._memo: dict[int, Any] = {}

    def read(self) -> Any:
        """Run it to its end."""
        steps = _STEPS
        for _ in range(MOST_VALUES):
            code = self._data[self._at]
            self._at += 1
            if code == _STOP:
                return self._stack.pop()
            step = steps.get(code)
            if step is None:
                raise PickleError(f"a pickle that makes more than plain data (code 0x{code:02x})")
            step(self)
        raise PickleError(f"a pickle of more than {MOST_VALUES:,} instructions")

    def take(self, size: int) -> bytes:
        """The next bytes."""
        end = self._at + size
        if size < 0 or end > len(self._data):
            raise PickleError("a truncated pickle")
        taken = self._data[self._at : end]
        self._at = end
        return taken

    def number(self, form: str) -> int:
        """The next bytes as a number."""
        packed = struct.Struct(form)
        value: int = packed.unpack(self.take(packed.size))[0]
        return value

    def push(self, value: Any) -> None:
        """Put a value on the stack."""
        self._stack.append(value)

    def mark(self) -> None:
        """Note where the parts of what comes next begin."""
        self._marks.append(len(self._stack))

    def since_mark(self) -> list[Any]:
        """Take what was pushed since the last mark."""
        start = self._marks.pop()
        parts = self._stack[start:]
        del self._stack[start:]
        return parts

    def last(self, count: int) -> list[Any]:
        """Take the last values."""
        if len(self._stack) < count:
            raise PickleError("an invalid pickle: too few values")
        parts = self._stack[-count:]
        del self._stack[-count:]
        return parts

    def extend(self, values: list[Any]) -> None:
        """Add values to the list on top."""
        top = self._stack[-1]
        if type(top) is not list:
            raise PickleError("an invalid pickle: values without a list")
        top.extend(values)

    def set_items(self, values: list[Any]) -> None:
        """Add keys and values to the dictionary on top."""
        top = self._stack[-1]
        if type(top) is not dict or len(values) % 2:
            raise PickleError("an invalid pickle: items without a dictionary")
        for key, value in zip(values[::2], values[1::2], strict=True):
            if type(key) not in (str, int):
                raise PickleError("a pickle with keys that are neither texts nor numbers")
            top[key] = value

    def keep(self, number: int) -> None:
        """Keep what is on top for later use."""
        self._memo[number] = self._stack[-1]

    def recall(self, number: int) -> None:
        """Push what was kept."""
        self._stack.append(self._memo[number])

    def memoize(self) -> None:
        """Keep what is on top under the next number."""
        self.keep(len(self._memo))


_STOP = ord(".")
_STEPS: dict[int, Callable[[_Reader], object]] = {
    0x80: lambda r: r.take(1),  # the protocol
    0x95: lambda r: r.take(8),  # the size of a frame
    ord("("): lambda r: r.mark(),
    ord("N"): lambda r: r.push(None),
    0x88: lambda r: r.push(True),
    0x89: lambda r: r.push(False),
    ord("J"): lambda r: r.push(r.number("<i")),
    ord("K"): lambda r: r.push(r.number("<B")),
    ord("M"): lambda r: r.push(r.number("<H")),
    0x8A: lambda r: r.push(int.from_bytes(r.take(r.number("<B")), "little", signed=True)),
    ord("G"): lambda r: r.push(r.number(">d")),
    ord("X"): lambda r: r.push(r.take(r.number("<I")).decode()),
    0x8C: lambda r: r.push(r.take(r.number("<B")).decode()),
    0x8D: lambda r: r.push(r.take(r.number("<Q")).decode()),
    ord("]"): lambda r: r.push([]),
    ord("}"): lambda r: r.push({}),
    ord(")"): lambda r: r.push(()),
    0x85: lambda r: r.push(tuple(r.last(1))),
    0x86: lambda r: r.push(tuple(r.last(2))),
    0x87: lambda r: r.push(tuple(r.last(3))),
    ord("t"): lambda r: r.push(tuple(r.since_mark())),
    ord("l"): lambda r: r.push(r.since_mark()),
    ord("a"): lambda r: r.extend(r.last(1)),
    ord("e"): lambda r: r.extend(r.since_mark()),
    ord("s"): lambda r: r.set_items(r.last(2)),
    ord("u"): lambda r: r.set_items(r.since_mark()),
    ord("q"): lambda r: r.keep(r.number("<B")),
    ord("r"): lambda r: r.keep(r.number("<I")),
    0x94: lambda r: r.memoize(),
    ord("h"): lambda r: r.recall(r.number("<B")),
    ord("j"): lambda r: r.recall(r.number("<I")),
}
