"""What the terminal receives while a view or a page opens."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.tui.running import running
from tests.tui.worlds import COLLISION


@pytest.mark.parametrize(
    "keys",
    [("tab", "enter"), ("tab", "enter", "w"), ("l", "enter"), ("2",), ("5",), ("question_mark",)],
    ids=["finding", "waterfall", "port", "switches", "matrix", "help"],
)
async def test_no_frame_without_content_is_sent(
    keys: Sequence[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running(COLLISION, size=(80, 24)) as run:
        await run.press(*keys[:-1])
        sent: list[str] = []
        display = run.app._display

        def note(screen: Any, renderable: Any) -> None:
            if renderable is not None and not run.app._batch_count:
                sent.append(run.text)
            display(screen, renderable)

        monkeypatch.setattr(run.app, "_display", note)
        await run.press(keys[-1])
        await run.settle()
        assert sent
        lines = [[line for line in text.splitlines() if line.strip()] for text in sent]
        assert min(len(each) for each in lines) > 10, min(sent, key=len)
