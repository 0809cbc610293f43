"""Frames as SVG: small, sharp at any size, and the same with every monospaced font.

Blocks and lines are drawn as shapes; only letters and symbols need a font.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape

from rich.cells import cell_len

from tests.pictures.frame import Frame, Look

W, H = 8, 17
"""Pixels of a character cell."""

_PAD = 10
_BASELINE = 13
_FONT = "ui-monospace,SFMono-Regular,Menlo,Consolas,'DejaVu Sans Mono',monospace"
_LOWER, _LEFT = " ▁▂▃▄▅▆▇█", " ▏▎▍▌▋▊▉"
_SHADES = {"░": 0.25, "▒": 0.5, "▓": 0.75}
_QUADRANTS = {"▖": "c", "▗": "d", "▘": "a", "▝": "b", "▙": "acd", "▚": "ad", "▛": "abc"}
_QUADRANTS |= {"▜": "abd", "▞": "bc", "▟": "bcd"}
_ARMS = {
    "─": "lr", "│": "ud", "╭": "rd", "╮": "ld", "╰": "ru", "╯": "lu", "┌": "rd", "┐": "ld",
    "└": "ru", "┘": "lu", "├": "udr", "┤": "udl", "┬": "lrd", "┴": "lru", "┼": "lrud",
    "━": "lr", "┃": "ud", "╴": "l", "╶": "r", "╵": "u", "╷": "d",
}  # fmt: skip
_THICK = "━┃"


def svg(frame: Frame) -> str:
    """One frame."""
    shapes = _Shapes()
    for y, row in enumerate(frame.rows):
        shapes.add(row, y, frame.paper)
    return _document(frame, shapes.styles, "".join(shapes.drawn()))


def animated(frames: Sequence[Frame], seconds: Sequence[float]) -> str:
    """Frames one after the other, each for so many `seconds`, without end.

    A row that stays the same is in the file once.
    """
    total = sum(seconds)
    begins = [sum(seconds[:number]) for number in range(len(frames) + 1)]
    styles = _Styles()
    spans: dict[tuple[float, float], list[str]] = defaultdict(list)
    for y in range(len(frames[0].rows)):
        first = 0
        for number in range(1, len(frames) + 1):
            if number < len(frames) and frames[number].rows[y] == frames[first].rows[y]:
                continue
            shapes = _Shapes(styles)
            shapes.add(frames[first].rows[y], y, frames[0].paper)
            spans[begins[first], begins[number]] += shapes.drawn()
            first = number
    body = []
    for number, ((begin, end), drawn) in enumerate(spans.items()):
        if (begin, end) == (0.0, total):
            body += drawn
            continue
        a, b = 100 * begin / total, 100 * end / total
        shown = f"{a:.4g}%{{visibility:visible}}"
        before = "" if begin == 0 else "0%{visibility:hidden}"
        after = "" if end == total else f"{b:.4g}%{{visibility:hidden}}"
        styles.rules.append(f"@keyframes k{number}{{{before}{shown}{after}}}")
        styles.rules.append(
            f".k{number}{{visibility:hidden;animation:k{number} {total:g}s step-end infinite}}"
        )
        body.append(f'<g class="k{number}">{"".join(drawn)}</g>')
    return _document(frames[0], styles, "".join(body))


@dataclass(slots=True)
class _Styles:
    """The colours in use, as classes, and other rules."""

    names: dict[str, str] = field(default_factory=dict)
    rules: list[str] = field(default_factory=list)

    def name(self, rule: str) -> str:
        """The class with this rule."""
        if rule not in self.names:
            self.names[rule] = f"c{len(self.names)}"
            self.rules.append(f".{self.names[rule]}{{{rule}}}")
        return self.names[rule]


@dataclass(slots=True)
class _Shapes:
    """Shapes by colour, and texts."""

    styles: _Styles = field(default_factory=_Styles)
    papers: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    fills: dict[tuple[str, float], list[str]] = field(default_factory=lambda: defaultdict(list))
    strokes: dict[tuple[str, bool], list[str]] = field(default_factory=lambda: defaultdict(list))
    texts: list[str] = field(default_factory=list)

    def add(self, row: Sequence[tuple[str, Look]], y: int, paper: str) -> None:
        """Draw row `y` on a `paper` of this colour."""
        x = 0
        for text, colour in _same_paper(row):
            width = cell_len(text)
            if colour != paper:
                self.papers[colour].append(_box(x * W, y * H, width * W, H))
            x += width
        x, letters = 0, _Letters()
        for text, look in row:
            for char in text:
                if char != " " and self._shape(char, x, y, look):
                    self._flush(letters, y)
                elif char == " ":
                    letters.space(x)
                else:
                    if letters.look not in (None, look):
                        self._flush(letters, y)
                    letters.put(char, x, look)
                x += cell_len(char)
        self._flush(letters, y)

    def drawn(self) -> list[str]:
        """The elements, from back to front."""
        parts = []
        for colour, boxes in self.papers.items():
            parts.append(
                f'<path class="{self.styles.name(f"fill:{colour}")}" d="{"".join(boxes)}"/>'
            )
        for (colour, alpha), boxes in self.fills.items():
            rule = f"fill:{colour}" + (f";opacity:{alpha:g}" if alpha < 1 else "")
            parts.append(f'<path class="{self.styles.name(rule)}" d="{"".join(boxes)}"/>')
        for (colour, thick), lines in self.strokes.items():
            rule = f"fill:none;stroke:{colour}" + (";stroke-width:2.5" if thick else "")
            parts.append(f'<path class="{self.styles.name(rule)}" d="{"".join(lines)}"/>')
        return parts + self.texts

    def _shape(self, char: str, x: int, y: int, look: Look) -> bool:
        """Draw a block or a line; False for a letter."""
        left, top = x * W, y * H
        fill = self.fills[look.ink, _SHADES.get(char, 1.0)] if char in _FILLED else None
        if fill is not None:
            fill += [_box(left + a, top + b, c, d) for a, b, c, d in _boxes(char)]
        elif char in _ARMS:
            self.strokes[look.ink, char in _THICK].append(_line(char, left, top))
        return fill is not None or char in _ARMS

    def _flush(self, letters: _Letters, y: int) -> None:
        text, look = letters.text.rstrip(), letters.look
        if look is not None and text:
            rule = f"fill:{look.ink}" + (";font-weight:700" if look.bold else "")
            width = cell_len(text) * W
            length = f' textLength="{width}"' if len(text) > 1 else ""
            self.texts.append(
                f'<text class="{self.styles.name(rule)}" x="{letters.x * W}"'
                f' y="{y * H + _BASELINE}"{length}>{escape(text, quote=False)}</text>'
            )
        letters.look, letters.text = None, ""


@dataclass(slots=True)
class _Letters:
    """Letters of one look that are written as one text; blanks have any look."""

    look: Look | None = None
    text: str = ""
    x: int = 0

    def put(self, char: str, x: int, look: Look) -> None:
        """Add a letter."""
        if self.look is None:
            self.look, self.text, self.x = look, "", x
        self.text += char

    def space(self, x: int) -> None:
        """Add a blank."""
        if self.look is not None:
            self.text += " "


_FILLED = frozenset(_LOWER[1:] + _LEFT[1:] + "▐▀▔▕" + "".join(_SHADES) + "".join(_QUADRANTS))


def _boxes(char: str) -> Iterator[tuple[float, float, float, float]]:
    """The boxes of a block character: x, y, width, height."""
    half_w, half_h = W / 2, H / 2
    if char in _SHADES:
        yield 0, 0, W, H
    elif char in _LOWER:
        height = H * _LOWER.index(char) / 8
        yield 0, H - height, W, height
    elif char in _LEFT:
        yield 0, 0, W * _LEFT.index(char) / 8, H
    elif char in _QUADRANTS:
        places = {"a": (0.0, 0.0), "b": (half_w, 0.0), "c": (0.0, half_h), "d": (half_w, half_h)}
        for part in _QUADRANTS[char]:
            yield (*places[part], half_w, half_h)
    else:
        yield {
            "▐": (half_w, 0.0, half_w, float(H)),
            "▀": (0.0, 0.0, float(W), half_h),
            "▔": (0.0, 0.0, float(W), H / 8),
            "▕": (W * 7 / 8, 0.0, W / 8, float(H)),
        }[char]


def _line(char: str, left: float, top: float) -> str:
    """The path of a line-drawing character."""
    x, y = left + W / 2, top + H / 2
    ends = {"l": f"{left:g} {y:g}", "r": f"{left + W:g} {y:g}"}
    ends |= {"u": f"{x:g} {top:g}", "d": f"{x:g} {top + H:g}"}
    arms = _ARMS[char]
    if char in "╭╮╰╯":
        return f"M{ends[arms[0]]}Q{x:g} {y:g} {ends[arms[1]]}"
    if arms in ("lr", "ud"):
        return f"M{ends[arms[0]]}L{ends[arms[1]]}"
    return "".join(f"M{x:g} {y:g}L{ends[arm]}" for arm in arms)


def _box(x: float, y: float, width: float, height: float) -> str:
    return f"M{x:g} {y:g}h{width:g}v{height:g}h{-width:g}z"


def _same_paper(row: Sequence[tuple[str, Look]]) -> Iterator[tuple[str, str]]:
    """Runs of one background: text and colour."""
    held, colour = "", ""
    for text, look in row:
        if look.paper != colour and held:
            yield held, colour
            held = ""
        held, colour = held + text, look.paper
    if held:
        yield held, colour


def _document(frame: Frame, styles: _Styles, body: str) -> str:
    width, height = frame.width * W + 2 * _PAD, len(frame.rows) * H + 2 * _PAD
    rules = "".join(styles.rules)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
        f' width="{width}" height="{height}"><style>text{{font:{H * 0.775:.4g}px {_FONT};'
        f"white-space:pre}}{rules}</style>"
        f'<rect width="{width}" height="{height}" rx="6" fill="{frame.paper}"/>'
        f'<g transform="translate({_PAD} {_PAD})">{body}</g></svg>\n'
    )
