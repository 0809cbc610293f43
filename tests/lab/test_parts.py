"""A missing part is seen: skipped with its reason, or failed where everything is needed."""

from __future__ import annotations

import pytest

from tests import requirements


def test_a_present_part_lets_the_test_run() -> None:
    requirements.need("nothing", True, "never said")
    requirements.need_command("sh", "dash")


def test_a_missing_part_is_skipped_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FABMON_NEED_ALL", raising=False)
    with pytest.raises(pytest.skip.Exception, match="no-such-tool: apt-get install its-package"):
        requirements.need_command("no-such-tool", "its-package")


def test_a_missing_part_fails_the_full_gate(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FABMON_NEED_ALL", "1")
    with pytest.raises(pytest.fail.Exception, match="/no/such/file: a newer kernel"):
        requirements.need_path("/no/such/file", "a newer kernel")
