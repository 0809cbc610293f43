from __future__ import annotations

import numpy as np
import pytest

from fabmon.fabric.flows.queue_pairs import is_derived, roce_source_port


# As the two functions of the kernel's include/rdma/ib_verbs.h print them, compiled by themselves.
@pytest.mark.parametrize(
    ("lqpn", "rqpn", "sport"),
    [
        (0, 12345, 0xC000),
        (1, 1, 0xC001),
        (0x80, 0x80, 0xC001),
        (0x1234, 0xABC, 0xE631),
        (300, 700, 0xF45C),
        (0x12AB34, 0x98FE01, 0xC1F9),
        (0xFFFFFF, 0xFFFFFF, 0xFF21),
    ],
)
def test_the_port_is_the_kernels(lqpn: int, rqpn: int, sport: int) -> None:
    assert roce_source_port(np.array([lqpn]), np.array([rqpn])).tolist() == [sport]
    assert roce_source_port(np.array([rqpn]), np.array([lqpn])).tolist() == [sport]


def test_only_drivers_that_call_the_helper_have_it() -> None:
    assert is_derived({"driver": "mlx5_core"}, "ethernet")
    assert is_derived({"driver": "ionic"}, "ethernet")
    assert not is_derived({"driver": "bnxt_en"}, "ethernet")
    assert not is_derived({"driver": "mlx5_core"}, "infiniband")
    assert not is_derived({}, "ethernet")
