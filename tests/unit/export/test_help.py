from __future__ import annotations

import pytest

from tests.goldens import check_golden
from tests.unit.test_cli import GOLDENS, fabmon


@pytest.mark.parametrize("command", ["export", "report", "cut"])
def test_help(command: str) -> None:
    check_golden(GOLDENS / f"help_{command}.txt", fabmon(command, "--help").stdout)
