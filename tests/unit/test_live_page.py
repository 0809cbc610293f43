"""`fabmon watch --page`: the report page of the last hour, complete at any time."""

from __future__ import annotations

import fcntl
import os
import re
import threading
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest

from fabmon.analysis.scene import Scene
from fabmon.session.errors import UsageError
from fabmon.session.live_page import LivePage
from tests.tui.recordings import Watching


@pytest.fixture(scope="module")
def scenes() -> list[Scene]:
    """70 s with a collision from 20 to 45 s."""
    watching = Watching()
    return [watching.next() for _ in range(70)]


def later(scene: Scene, seconds: float) -> Scene:
    """A scene with another time, and no news."""
    time_ns = scene.snapshot.time_ns + int(seconds * 1e9)
    snapshot = replace(scene.snapshot, time_ns=time_ns)
    return replace(scene, snapshot=snapshot, findings=(), changes=(), events=())


async def written(page: LivePage, *scenes: Scene) -> None:
    """Take scenes, of which the last is due to be written."""
    for scene in scenes[:-1]:
        page.take(scene)
    await page.close()
    page._due_s = 0.0
    page.take(scenes[-1])
    await page.close()


async def test_it_has_the_findings_of_the_last_hour(tmp_path: Path, scenes: list[Scene]) -> None:
    page = LivePage(tmp_path, "pod7")
    await written(page, *scenes)
    html = (tmp_path / "index.html").read_text("utf-8")
    assert html.endswith("</html>\n")
    assert '<meta http-equiv="refresh" content="60">' in html
    assert "ECMP collision" in html
    assert "2026-11-21 13:07:4" in html
    await written(page, later(scenes[-1], 3500), later(scenes[-1], 3700))
    html = (tmp_path / "index.html").read_text("utf-8")
    assert "14:09:" in re.findall(r"\d\d:\d\d:\d\dZ to", html)[0]
    assert "ECMP collision" not in html, "it ended more than an hour ago"


async def test_its_values_stay_at_their_time(tmp_path: Path, scenes: list[Scene]) -> None:
    page = LivePage(tmp_path, "pod7")
    for scene in scenes:
        page.take(scene)
    await page.close()
    assert page._digest is not None
    before = page._digest.busy.highest[:, -1].copy()
    page.take(later(scenes[-1], 90))
    await page.close()
    page._digest.ticks = 90_000
    await written(page, later(scenes[-1], 91))
    assert "<b>3,600</b><span>ticks</span>" in (tmp_path / "index.html").read_text("utf-8")
    assert (page._digest.busy.highest[:, -4] == before)[before == before].all()


async def test_its_owner_alone_may_read_it_until_he_says_otherwise(
    tmp_path: Path, scenes: list[Scene]
) -> None:
    page, path = LivePage(tmp_path, "pod7"), tmp_path / "index.html"
    await written(page, *scenes[:10])
    assert path.stat().st_mode & 0o777 == 0o600
    path.chmod(0o644)
    before = path.stat().st_ino
    await written(page, scenes[10])
    assert path.stat().st_mode & 0o777 == 0o644
    assert path.stat().st_ino != before, "a reader of the old page has all of it"


async def test_a_directory_that_goes_costs_one_line(
    tmp_path: Path, scenes: list[Scene], caplog: pytest.LogCaptureFixture
) -> None:
    directory = tmp_path / "www"
    with pytest.raises(
        UsageError, match=r"--page .*www: no such directory; make it first: mkdir -p .*www"
    ):
        LivePage(directory, "pod7")
    directory.mkdir()
    page = LivePage(directory, "pod7")
    directory.rmdir()
    await written(page, *scenes[:5])
    await written(page, scenes[5])
    assert len(caplog.messages) == 1
    directory.mkdir()
    await written(page, scenes[6])
    assert "written again" in caplog.messages[1]


async def test_two_watches_do_not_share_a_page(tmp_path: Path) -> None:
    page = LivePage(tmp_path, "pod7")
    with pytest.raises(UsageError, match="another watch writes its page there"):
        LivePage(tmp_path, "pod8")
    await page.close()
    await LivePage(tmp_path, "pod8").close()


async def test_who_can_read_the_directory_of_a_page_cannot_lock_it(tmp_path: Path) -> None:
    held = os.open(tmp_path, os.O_RDONLY)
    fcntl.flock(held, fcntl.LOCK_EX)
    await LivePage(tmp_path, "pod7").close()
    os.close(held)


@pytest.mark.parametrize("by_s", [400 * 86_400, -600])
async def test_what_it_shows_is_as_old_as_it_is_after_the_clock_was_set(
    tmp_path: Path, by_s: int
) -> None:
    page, watching = LivePage(tmp_path, "pod7"), Watching()
    for second in range(70):
        tick = watching.feed.step()
        is_after, by_ns = second >= 60, by_s * 10**9
        time_ns = tick.time_ns + by_ns * is_after
        jumped_ns = by_ns * (second == 60)
        page.take(
            watching.judge(
                msgspec.structs.replace(tick, time_ns=time_ns, clock_jumped_ns=jumped_ns)
            )
        )
    assert page._digest is not None
    assert np.isfinite(page._digest.busy.highest[:, -3:]).any()
    (reported,) = page._digest.findings.values()
    assert reported.finding.until_ns is not None, "it ended before the clock was set"
    assert 10 < (time_ns - reported.finding.until_ns) / 1e9 < 30
    await page.close()


@pytest.mark.parametrize("ahead_s", [400 * 86_400, 7200])
async def test_after_the_clock_was_set_back_it_begins_anew(
    tmp_path: Path, scenes: list[Scene], ahead_s: int
) -> None:
    page = LivePage(tmp_path, "pod7")
    for scene in scenes[:30]:
        page.take(scene)
    for scene in scenes[30:34]:
        page.take(later(scene, ahead_s))
    await written(page, *scenes[34:])
    html = (tmp_path / "index.html").read_text("utf-8")
    assert re.findall(r"2026-11-21 13:07:\d\dZ to 2026-11-21 14:07:", html)
    assert "ECMP collision" in html, "it was open"
    assert page._digest is not None
    known = np.isfinite(page._digest.busy.highest)
    assert known[:, -1].any()
    assert not known[:, :-3].any(), "nothing was seen an hour ago"


async def test_a_directory_that_does_not_answer_is_said_once(
    tmp_path: Path,
    scenes: list[Scene],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    released = threading.Event()
    monkeypatch.setattr("fabmon.session.live_page.EVERY_S", 0)
    monkeypatch.setattr("fabmon.session.live_page.replace_file", lambda *_, **__: released.wait(30))
    page = LivePage(tmp_path, "pod7")
    for scene in scenes[:5]:
        page.take(scene)
    path = tmp_path / "index.html"
    slow = f"--page: {path}: not written in 0 s: does its file system answer?"
    assert caplog.messages == [slow]
    released.set()
    await page.close()
    assert caplog.messages[1:] == [f"--page: {path}: written again"]


def test_a_directory_that_does_not_answer_at_the_start_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    released = threading.Event()
    monkeypatch.setattr("fabmon.session.live_page.START_S", 0.1)
    monkeypatch.setattr("fabmon.session.live_page.check_writable", lambda _: released.wait(30))
    with pytest.raises(UsageError, match="its file system does not answer"):
        LivePage(tmp_path, "pod7")
    released.set()
