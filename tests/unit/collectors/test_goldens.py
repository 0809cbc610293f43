"""The objects and values of every fake host, as text for review.

`FABMON_UPDATE_GOLDENS=1` writes the files (and fails, so that the difference is reviewed).
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from collectors.registry import SOURCES
from collectors.source import NoData, SourceError
from tests.fixtures import hosts, nvml
from tests.fixtures.reading import ask
from tests.goldens import readable_json

GOLDENS = Path(__file__).parent / "goldens"


def seen_on(name: str, root: Path) -> dict[str, Any]:
    hosts.SMALL_HOSTS[name](root)
    seen: dict[str, Any] = {}
    for source in SOURCES:
        try:
            answer = ask(source, root)
        except NoData:
            continue  # a host's golden does not mention the sources that the host lacks
        except SourceError as error:
            seen[source] = f"{error.reason}: {error}"
        else:
            seen[source] = [
                {
                    "id": item.id,
                    **({} if item.node is None else {"node": item.node}),
                    "kind": item.kind,
                    "port": item.port,
                    "info": item.info,
                    "values": answer.of(item.id),
                }
                for item in answer.objects
            ]
    return seen


@pytest.mark.parametrize("name", sorted(hosts.HOSTS))
def test_the_values_of_a_host(tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(nvml.VARIABLE, str(tmp_path / nvml.SCENARIO))
    text = readable_json(seen_on(name, tmp_path)) + "\n"
    golden = GOLDENS / f"{name}.json"
    if os.environ.get("FABMON_UPDATE_GOLDENS") == "1":
        golden.parent.mkdir(exist_ok=True)
        golden.write_text(text, encoding="ascii")
        pytest.fail(f"{golden.name} written: look at the difference, then run again without")
    assert json.loads(text) == json.loads(golden.read_text(encoding="ascii"))


def test_there_is_no_golden_without_a_host() -> None:
    assert {path.stem for path in GOLDENS.glob("*.json")} == set(hosts.HOSTS)


def test_the_goldens_show_every_registered_source_at_work() -> None:
    working = set()
    for path in GOLDENS.glob("*.json"):
        seen = json.loads(path.read_text(encoding="ascii"))
        working |= {source for source, objects in seen.items() if isinstance(objects, list)}
    assert working == set(SOURCES)
