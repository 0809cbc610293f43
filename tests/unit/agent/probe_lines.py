"""The lines of a probe on a fixture host, and an agent's state after them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from collectors import wire
from collectors.hostfs import HostFS
from collectors.loop.probe import Probe
from collectors.loop.source_loader import load_source
from collectors.registry import SOURCES
from collectors.source import NoData, Source, SourceError
from fabmon.agent.server import Exposition
from fabmon.agent.streams import ProbeState

NOW_NS = 100 * 10**9
ABOUT = {"hostname": "gpu001", "kernel": "6.1.0", "probe": "0.1.0", "boot_id": "b"}


def _is_absent(source: Source) -> bool:
    """Whether the host has nothing for a source: then no golden mentions the source."""
    try:
        source.discover()
    except NoData:
        return True
    except SourceError:
        return False
    finally:
        source.close()
    return False


def lines_of_a_probe(root: Path) -> list[bytes]:
    """The lines of a probe's first tick, read from a tree that looks like /."""
    fs = HostFS(str(root))
    lines: list[bytes] = []
    sources = [load_source(name)(fs) for name in SOURCES]
    sources = [source for source in sources if not _is_absent(source)]
    for source in sources:
        source.deadline_s = 30.0  # a busy machine is not what is tested here
    Probe(sources, lines.append, ABOUT).run(1)
    for source in sources:
        source.close()
    return lines


def state_after(lines: Sequence[bytes]) -> ProbeState:
    state = ProbeState()
    for line in lines:
        state.take(line, NOW_NS)
    return state


def page(state: ProbeState, content_type: str, *, is_fresh: bool = True) -> str:
    """The page of a scrape half a second after every source was read."""
    assert state.hello is not None
    state.read_at_ns = dict.fromkeys(state.read_at_ns, NOW_NS - 5 * 10**8)
    return Exposition(state.hello).text(state, content_type, NOW_NS, is_fresh=is_fresh)


def hello_line(*blocks: wire.BlockLayout, **about: object) -> bytes:
    return wire.hello(blocks, {**ABOUT, "interval_s": 1.0, **about})


def layout(
    source: str, *metrics: str, port: str | None = "eth0", every: int = 1
) -> wire.BlockLayout:
    item = wire.Object(port or "node", "ethernet", port, {}, metrics)
    return wire.BlockLayout(source, every, [item])


def frame_line(seq: int, *blocks: wire.Block) -> bytes:
    return wire.frame(seq, seq * 10**9, seq * 10**9, blocks)
