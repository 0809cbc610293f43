"""The overview at every size, theme, colour depth and fabric, with a page that shows all."""

from __future__ import annotations

from html import escape
from itertools import product
from pathlib import Path

from fabmon.tui.palette import Depth, Theme
from tests.pictures.shots import COLLISION_S, Play, shot, shown
from tests.pictures.svg import svg

SIZES = ((60, 18), (80, 24), (120, 36), (160, 48), (240, 70))
HOSTS = (16, 128, 1024)

_PAGE = """<!doctype html><meta charset="utf-8"><title>fabmon, every size</title>
<style>body{font:14px system-ui;background:#888;margin:16px}figure{display:inline-block;margin:8px}
img{display:block;max-width:100%}figcaption{color:#fff}</style>
"""


async def make(directory: Path, only: str = "") -> None:
    """Write an SVG for each combination whose name contains `only`, and index.html.

    Names are `HOSTS-healthy-160x48-dark-truecolor.svg`. A screen gets all scenes, so that it has
    what a person sees who has watched it from the beginning.
    """
    made = []
    for hosts, healthy in product(HOSTS, (True, False)):
        stem = f"{hosts}-{'healthy' if healthy else 'collision'}"
        wanted = {
            f"{stem}-{size[0]}x{size[1]}-{theme}-{depth}": (size, theme, depth)
            for size, theme, depth in product(SIZES, Theme, Depth)
        }
        wanted = {name: each for name, each in wanted.items() if only in name}
        if not wanted:
            continue
        scenes = list(Play(hosts, healthy).scenes(COLLISION_S))
        for name, (size, theme, depth) in wanted.items():
            async with shown(scenes, size, theme, depth) as run:
                picture = svg(await shot(run, theme))
            (directory / f"{name}.svg").write_text(picture, "utf-8")
            made.append(name)
            print(name, flush=True)
    figures = [
        f'<figure><img loading="lazy" src="{escape(name)}.svg"><figcaption>{escape(name)}'
        "</figcaption></figure>"
        for name in made
    ]
    (directory / "index.html").write_text(_PAGE + "\n".join(figures) + "\n", "utf-8")
