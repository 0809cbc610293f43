"""Natural order of names, and the size of the caches of what is derived from them."""

from __future__ import annotations

import difflib
import tracemalloc
from collections.abc import Callable

import pytest

from fabmon.fabric.names import matches, natural, nearest
from fabmon.fabric.roles.evidence import _network
from fabmon.fabric.topology.address_cables import _of_link


def test_names_are_ordered_by_their_numbers_and_those_that_begin_with_one_are_last() -> None:
    names = ["10.0.0.1", "9a", "gpu10", "gpu9", "gpu9/mlx5_10", "gpu9/mlx5_2", "", "gpu", "leaf1"]
    assert sorted(names, key=natural) == [
        *("", "gpu", "gpu9", "gpu9/mlx5_2", "gpu9/mlx5_10", "gpu10", "leaf1", "9a", "10.0.0.1")
    ]


@pytest.mark.parametrize(
    "derive", [natural, lambda text: matches(text, ("leaf*",)), _of_link, _network]
)
def test_long_texts_of_nodes_are_in_no_cache(derive: Callable[[str], object]) -> None:
    derive("leaf1")
    tracemalloc.start()
    for number in range(2000):
        derive(f"{number}x" + "7a" * 190)
    kept_bytes, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept_bytes < 100_000, "2,000 keys of 28 kB"


def test_of_100_000_names_a_mistyped_one_is_compared_with_few(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    compared = 0

    class Counting(difflib.SequenceMatcher[str]):
        def real_quick_ratio(self) -> float:
            nonlocal compared
            compared += 1
            return super().real_quick_ratio()

    monkeypatch.setattr(difflib, "SequenceMatcher", Counting)
    names = [f"gpu{node:05}/mlx5_{port}" for node in range(12_500) for port in range(8)]
    assert nearest("gpu01234/mlx5_9", names, 3)[0].startswith("gpu01234/mlx5_")
    assert nearest("gup00001/mlx5_0", names, 1) == ["gpu00001/mlx5_0"]
    assert compared <= 4_000
    assert nearest("leaf01", [*names, "leaf1"], 1) == ["leaf1"]


def test_names_as_long_as_a_hostile_node_may_send_are_compared_with_nothing() -> None:
    assert nearest("a" * 200, ["a" * 400] * 9, 1) == []
    assert nearest("gpu01", ["a" * 400, "", "gpu1"], 1) == ["gpu1"]
