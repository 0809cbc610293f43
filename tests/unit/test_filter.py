from __future__ import annotations

import pytest

from fabmon.fabric.filter import FilterError, index, match, parse
from fabmon.fabric.measures import NAMES
from tests.tui.worlds import HEALTHY, troubled


def left(text: str, seq: int = 70) -> tuple[set[str], set[str]]:
    """(nodes, ports) that a filter leaves of the troubled fabric."""
    snapshot = troubled().scene(seq).snapshot
    matched = match(parse(text), snapshot, index(snapshot.fabric))
    ports = {port.id for port in snapshot.fabric.ports if matched.ports[port.row]}
    return set(matched.nodes), ports


def test_a_word_is_looked_for_in_names() -> None:
    nodes, ports = left("gpu00")
    assert nodes == {f"gpu00{n}" for n in range(1, 9)}
    assert len(ports) == 6 * 8


def test_not() -> None:
    nodes, _ = left("!gpu !spine")
    assert nodes == {"leaf1", "leaf2"}


def test_fields() -> None:
    assert left("role:switch group:leaf1")[0] == {"leaf1"}
    assert left("rail:3")[1] == {f"gpu00{n}/mlx5_3" for n in (1, 2, 3, 4, 5, 8)}
    assert left("node:gpu001 port:mlx5_0")[1] == {"gpu001/mlx5_0"}
    assert left("port:up5")[1] == {"leaf1/swp37", "leaf2/swp37"}


def test_states_of_nodes_and_of_ports() -> None:
    assert left("state:failed")[0] == {"gpu006", "gpu007"}
    assert left("state:down")[1] == {"gpu003/mlx5_2", "leaf1/swp19"}
    assert left("state:lost")[0] == {"gpu005"}
    assert "gpu005" in left("state:stale")[0]
    assert "gpu003/mlx5_2" not in left("state:up")[1]


def test_comparisons_are_in_percent_or_per_second() -> None:
    assert left("util>95")[1] == {"leaf1/swp37", "spine3/swp1"}
    assert left("tx>95")[1] == {"leaf1/swp37"}
    assert left("ecn>=12000")[1] == {"leaf1/swp37"}
    assert left("pause<0.001 port:up5 leaf1")[1] == set()


def test_what_is_absent_compares_with_nothing() -> None:
    assert left("cnp<1") == (set(), set())


def test_all_terms_must_hold() -> None:
    assert left("util>95 !spine") == ({"leaf1"}, {"leaf1/swp37"})


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("rack:3", "unknown key 'rack': keys are state role group node port rail"),
        ("porrt:3", "unknown key 'porrt': did you mean port:"),
        ("role:switchfoo:bar", "role:switchfoo:bar is not one of host switch"),
        ("state:asleep", "down queued connecting"),
        ("power>3", "util tx rx"),
        ("util>lots", "needs a number"),
        ("!", "nothing after"),
    ],
)
def test_a_wrong_filter_says_what_would_be_right(text: str, said: str) -> None:
    with pytest.raises(FilterError, match=said):
        parse(text)


def test_a_port_that_is_gone_belongs_to_no_node() -> None:
    snapshot = HEALTHY.scene(70).snapshot
    known = index(snapshot.fabric)
    known.owner[0] = -1
    matched = match(parse("spine4"), snapshot, known)
    assert matched.nodes == {"spine4"}
    assert not matched.ports[0]


def test_every_metric_can_be_compared_by_its_name() -> None:
    for name in NAMES:
        assert parse(f"{name}>=0")[0].field == name
    assert parse("pause-rx-p3>1%")[0].number == 1
