from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from collectors.source import Failed, NoData
from collectors.sources.qps import pairs
from tests.fixtures import hosts, parts
from tests.fixtures.in_namespace import can_have_one, namespace
from tests.fixtures.reading import ask, source
from tests.requirements import need, need_root


def test_a_tree_carries_what_rdma_prints(tmp_path: Path) -> None:
    hosts.roce_host(tmp_path, hcas=2)
    answer = ask("qps", tmp_path)
    assert [(item.id, item.kind, item.port, item.metrics) for item in answer.objects] == [
        ("qps/mlx5_0", "queue_pairs", None, ()),
        ("qps/mlx5_1", "queue_pairs", None, ()),
    ]
    assert answer.info("qps/mlx5_1") == {
        "port": "mlx5_1",
        "count": 2,
        "lqpn": [300, 301],
        "rqpn": [700, 701],
        "type": ["RC", "RC"],
        "sq_psn": [0, 0],
        "rq_psn": [0, 0],
        "process": [0, 0],
        "processes": [{"comm": "python3", "pid": 4711, "job": "8812"}],
    }


def test_only_connections_that_are_ready_to_send_are_reported(tmp_path: Path) -> None:
    tree = hosts.roce_host(tmp_path, hcas=1)
    tree.queue_pairs(
        [
            parts.kernel_queue_pair("mlx5_0"),
            parts.queue_pair("mlx5_0", 10, 20, type="UD"),
            parts.queue_pair("mlx5_0", 11, 21, state="INIT"),
            parts.queue_pair("mlx5_0", 12, 22, state="ERR"),
            parts.queue_pair("mlx5_0", 15, 0),
            parts.queue_pair("mlx5_0", 13, 23, type="UC"),
            {**parts.queue_pair("mlx5_0", 14, 24, comm="nvme_rdma"), "pid": 0},
        ]
    )
    info = ask("qps", tmp_path).info("qps/mlx5_0")
    assert info["count"] == 2
    assert list(zip(info["lqpn"], info["rqpn"], info["type"])) == [(13, 23, "UC"), (14, 24, "RC")]
    assert [info["processes"][place] for place in info["process"]] == [
        {"comm": "python3", "pid": 4711, "job": "8812"},
        {"comm": "nvme_rdma"},
    ]


def test_nobody_connected_is_a_count_of_zero_and_no_answer_is_none(tmp_path: Path) -> None:
    tree = hosts.roce_host(tmp_path, hcas=1)
    tree.write("rdma_qp.json", "")
    assert ask("qps", tmp_path).info("qps/mlx5_0")["count"] == 0
    tree.remove("rdma_qp.json")
    with pytest.raises(NoData):
        source("qps", tmp_path).discover()


def test_a_node_with_many_queue_pairs_reports_4096_and_their_number(tmp_path: Path) -> None:
    tree = hosts.roce_host(tmp_path, hcas=3)
    few = [parts.queue_pair("mlx5_0", n, n + 1) for n in range(10)]
    many = [parts.queue_pair(f"mlx5_{i}", n, n + 1) for i in (1, 2) for n in range(5_000)]
    tree.queue_pairs([*few, *many])
    infos = [item.info for item in ask("qps", tmp_path).objects]
    assert [info["count"] for info in infos] == [10, 5_000, 5_000]
    assert [len(info["lqpn"]) for info in infos] == [10, 2_043, 2_043]
    assert {len(info[key]) for info in infos[1:] for key in ("rqpn", "type", "process")} == {2_043}


@pytest.mark.parametrize(
    ("line", "job"),
    [
        ("0::/system.slice/slurmstepd.scope/job_77/step_0/user/task_0", "77"),
        ("11:cpuset:/slurm/uid_1000/job_78/step_batch\n4:memory:/slurm/uid_1000/job_78", "78"),
        ("0::/user.slice/user-1000.slice/job_of_mine", None),
        ("", None),
    ],
)
def test_a_process_is_in_the_slurm_job_of_its_cgroup(tmp_path: Path, line: str, job: Any) -> None:
    tree = hosts.roce_host(tmp_path, hcas=1)
    tree.write("proc/4711/cgroup", line)
    assert ask("qps", tmp_path).info("qps/mlx5_0")["processes"][0].get("job") == job


@pytest.mark.parametrize(
    ("line", "pod"),
    [
        (
            "0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-"
            "pod3f2a91c0_0b1c_4d2e_8f3a_5b6c7d8e9f00.slice/cri-containerd-12ab.scope",
            "3f2a91c0-0b1c-4d2e-8f3a-5b6c7d8e9f00",
        ),
        (
            "4:memory:/kubepods/besteffort/pod3f2a91c0-0b1c-4d2e-8f3a-5b6c7d8e9f00/12ab",
            "3f2a91c0-0b1c-4d2e-8f3a-5b6c7d8e9f00",
        ),
        ("0::/user.slice/podman-77.scope", None),
        ("0::/machine.slice/libpod-3f2a91c0.scope", None),
    ],
)
def test_a_process_is_in_the_kubernetes_pod_of_its_cgroup(
    tmp_path: Path, line: str, pod: Any
) -> None:
    tree = hosts.roce_host(tmp_path, hcas=1)
    tree.write("proc/4711/cgroup", line)
    assert ask("qps", tmp_path).info("qps/mlx5_0")["processes"][0].get("pod") == pod


@pytest.mark.parametrize(
    ("allowed", "node"), [("0-3", 0), ("6,4", 1), ("3-4", None), ("", None), ("junk", None)]
)
def test_a_process_that_is_bound_to_one_numa_node(
    tmp_path: Path, allowed: str, node: int | None
) -> None:
    tree = hosts.roce_host(tmp_path, hcas=1)
    tree.write("sys/devices/system/node/node0/cpulist", "0-3\n")
    tree.write("sys/devices/system/node/node1/cpulist", "4-7\n")
    tree.write("proc/4711/status", f"Name:\tpython\nCpus_allowed_list:\t{allowed}\n")
    process = ask("qps", tmp_path).info("qps/mlx5_0")["processes"][0]
    assert process.get("numa_node") == node


@pytest.mark.parametrize(
    "text", ["{", '{"lqpn": 1}', "[1]", '[{"type": "RC", "state": "RTS", "rqpn": 1}]']
)
def test_other_output_than_queue_pairs_fails(text: str) -> None:
    with pytest.raises(Failed, match="did not print queue pairs"):
        pairs(text)


def test_the_port_of_a_device_that_does_not_name_it_is_its_first() -> None:
    row = parts.queue_pair("mlx5_0", 1, 2)
    del row["port"]
    assert pairs(json.dumps([row]))[0].port == 1


@pytest.fixture(scope="module")
def scene() -> Any:
    need_root()
    need("network namespaces", can_have_one(), "run in a privileged container")
    return namespace("qps")


def test_a_live_host_reports_why_it_has_no_queue_pairs(scene: Any) -> None:
    assert scene["without"] == [
        "unsupported",
        "no rdma command on this node: it comes with iproute2",
    ]
    assert scene["no such netlink"][0] == "unsupported"
    assert "rdma: Failed to open NETLINK_RDMA socket" in scene["no such netlink"][1]
    assert scene["refused"][0] == "denied"


def test_a_live_host_reports_the_output_of_its_command(scene: Any) -> None:
    facts = {name: info for name, _, info in scene["with"]}
    assert {name: info["lqpn"] for name, info in facts.items()} == {
        "qps/mlx5_0": [300],
        "qps/mlx5_1": [],
    }
    assert facts["qps/mlx5_0"]["processes"][0]["comm"] == "python3"


def test_a_live_host_is_queried_once_a_minute_and_packets_are_no_change(scene: Any) -> None:
    assert not scene["queried again at once"]
    assert not scene["changes with packets"]
    assert scene["changes with a queue pair"]
    assert {name: info["lqpn"] for name, _, info in scene["then"]} == {
        "qps/mlx5_0": [300],
        "qps/mlx5_1": [302],
    }
