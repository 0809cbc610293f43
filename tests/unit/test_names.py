"""Natural order of names, and the size of the caches of what is derived from them."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable

import pytest

from fabmon.fabric.names import matches, natural
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
