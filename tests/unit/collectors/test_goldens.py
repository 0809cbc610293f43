"""The objects and values of every fake host, as text for review.

`FABMON_UPDATE_GOLDENS=1` writes the files (and fails, so that the difference is reviewed).
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from collectors.registry import SOURCES
from collectors.source import NoData, SourceError
from tests.fixtures import hosts, nvml
from tests.fixtures.reading import ask
from tests.fixtures.tree import Tree
from tests.goldens import readable_json

GOLDENS = Path(__file__).parent / "goldens"

# Two of eight equal HCAs, and two of 18 NVLinks, cover all cases.
SMALL: dict[str, Callable[[Path], Tree]] = {
    "ib": lambda root: hosts.ib_host(root, hcas=2),
    "roce": lambda root: hosts.roce_host(root, hcas=2),
    "hgx": lambda root: with_few_links(hosts.hgx_host(root, hcas=2)),
    "nvlink5": lambda root: with_few_links(hosts.nvlink5_host(root)),
}


def with_few_links(tree: Tree) -> Tree:
    scenario = (tree.root / nvml.SCENARIO).read_text().replace("links 18", "links 2")
    (tree.root / nvml.SCENARIO).write_text(scenario.replace("gpus 8", "gpus 2"))
    return tree


def seen_on(name: str, root: Path) -> dict[str, Any]:
    SMALL.get(name, hosts.HOSTS[name])(root)
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
