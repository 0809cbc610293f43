"""Messages of nodes' kernels on the console: kept, bounded, on the timeline, and as findings."""

from __future__ import annotations

import json

import msgspec
import pytest

from collectors import wire
from collectors.wire import LOGGED, Object
from fabmon.fabric.kernel_log import MOST_KINDS, KernelLogs, failed_devices, message_text
from fabmon.fabric.model import Host
from fabmon.fabric.redaction import Redactor
from fabmon.fabric.tick import Tick
from fabmon.fabric.wire.messages import Notice, decode
from fabmon.recording.format.records import EventsRecord, RecordedState, SessionRecord
from fabmon.scenes.pipeline import Pipeline
from tests.builders import START_NS, frame, hello, new_pipeline, port, tick, up

NIC = "0000:41:00.0"
GPU = "0000:5f:00.0"


def logged(kind: str, device: str = NIC, text: str = "the line") -> Notice:
    return Notice(LOGGED, "kernel_log", device, kind, text=text)


def with_notices(of: Tick, *notices: Notice, node: str = "gpu001") -> Tick:
    return msgspec.structs.replace(of, notices=tuple((node, each) for each in notices))


class Node:
    """One node with two NICs, second by second."""

    def __init__(self) -> None:
        ports = [port("eth0", pci=NIC), port("eth1", pci="0000:42:00.0")]
        self.hello = hello(*ports, boot_id="one")
        self.pipeline: Pipeline = new_pipeline([Host(name="gpu001")])
        self.second = 0

    def step(self, *notices: Notice, boot_id: str = "", is_up: int = 1) -> None:
        hellos = {"gpu001": self.hello} if not self.second else {}
        if boot_id:
            self.hello = msgspec.structs.replace(self.hello, boot_id=boot_id)
            hellos = {"gpu001": self.hello}
        values = (is_up, self.second * 10**6, 0, 0)
        now = tick(
            self.second, {"gpu001": frame(self.second, *values, *values)}, hellos, up("gpu001")
        )
        self.scene = self.pipeline.accept(with_notices(now, *notices))
        self.second += 1

    def steps(self, count: int) -> None:
        for _ in range(count):
            self.step()

    @property
    def causes(self) -> list[tuple[str, str]]:
        return [(each.cause, each.subject) for each in self.scene.findings]


def test_a_dead_driver_is_found_though_the_counters_are_clean() -> None:
    node = Node()
    node.steps(3)
    node.step(logged("mlx5_health", text="mlx5_core 0000:41:00.0: device's health compromised"))
    assert node.causes == [("driver_failed", "gpu001/eth0")]
    (finding,) = node.scene.findings
    assert finding.text == (
        f"{node.scene.snapshot.fabric.ports[0].display_name}: the NIC's firmware does not answer "
        "any more; its counters show no error"
    )
    assert {each.name: each.value for each in finding.evidence} == {
        "device": NIC,
        "driver": "mlx5_core",
        "message": "mlx5_core 0000:41:00.0: device's health compromised",
    }
    (event,) = (each for each in node.scene.events if each.kind == "log")
    assert event.text == "gpu001 r0: the NIC's firmware does not answer any more"
    assert event.time_ns == START_NS + 3 * 10**9
    node.steps(60)
    assert node.causes, "it stays until something ends it"
    assert len([each for each in node.scene.events if each.kind == "log"]) == 1


@pytest.mark.parametrize(
    "kind", ["xid_²", "xid_٣", "sxid_²", "xid_" + "9" * 300, "xid_", "x" * 400]
)
def test_a_kind_that_no_probe_sends_is_a_message_without_a_meaning(kind: str) -> None:
    node = Node()
    node.steps(2)
    node.step(logged(kind, text="a text"))
    node.steps(2)
    assert not node.causes
    assert [each.kind for each in node.scene.events if each.kind == "log"]


def test_it_ends_when_the_driver_starts_the_device_again_and_only_of_that_device() -> None:
    node = Node()
    node.step()
    node.step(logged("mlx5_health"), logged("mlx5_fatal", "0000:42:00.0"))
    assert len(node.causes) == 2
    node.step(logged("mlx5_loaded"))
    node.steps(20)
    assert node.causes == [("driver_failed", "gpu001/eth1")]
    node.step(boot_id="two")
    node.steps(20)
    assert node.causes == [], "a reboot ends all"


def test_a_link_that_went_down_with_its_driver_is_the_same_finding() -> None:
    node = Node()
    node.steps(3)
    node.step(logged("mlx5_health"))
    for _ in range(5):
        node.step(is_up=0)
    assert ("driver_failed", "gpu001/eth0") in node.causes
    assert not any(cause == "link_down" and "eth0" in subject for cause, subject in node.causes)


class GpuNode:
    """A node with a NIC and a GPU, second by second; None: a value that cannot be read."""

    def __init__(self) -> None:
        metrics = ("nvlink_tx_bytes", "nvlink_rx_bytes")
        gpu = Object("gpu0", "gpu", "gpu0", {"gpu_name": "H100", "pci": GPU}, metrics)
        self.hello = hello(port("eth0", pci=NIC), gpu)
        self.pipeline: Pipeline = new_pipeline([Host(name="gpu001")])
        self.second = self.back_s = 0

    def steps(self, count: int, *notices: Notice, is_read: bool = True) -> list[str]:
        """The causes that are found after so many seconds."""
        for _ in range(count):
            hellos = {"gpu001": self.hello} if not self.second else {}
            data = self.second * 10**6
            values = (1, data, 0, 0, *((data, data) if is_read else (None, None)))
            now = tick(self.second, {"gpu001": frame(self.second, *values)}, hellos, up("gpu001"))
            now = msgspec.structs.replace(now, time_ns=now.time_ns - self.back_s * 10**9)
            scene = self.pipeline.accept(with_notices(now, *notices))
            notices = ()
            self.second += 1
        return [each.cause for each in scene.findings]


@pytest.mark.parametrize("back_s", [0, 7200])
def test_a_gpu_that_was_reset_without_a_message_works_again(back_s: int) -> None:
    """nvidia-smi --gpu-reset before R550: NVML does not answer for some seconds, then it does. The
    console's clock may be set back meanwhile."""
    node = GpuNode()
    node.steps(5)
    assert "driver_failed" in node.steps(5, logged("xid_79", GPU), is_read=False)
    assert "driver_failed" in node.steps(15, is_read=False)
    assert "driver_failed" in node.steps(30), "it has answered for half a minute"
    node.back_s = back_s
    assert "driver_failed" not in node.steps(60)
    assert "driver_failed" in node.steps(2, logged("xid_119", GPU)), "another failure"


def test_a_gpu_that_answers_all_the_while_may_still_need_its_reset() -> None:
    node = GpuNode()
    node.steps(5)
    assert "driver_failed" in node.steps(200, logged("xid_95", GPU))


def test_an_event_that_is_not_fatal_is_no_finding() -> None:
    node = Node()
    node.step()
    node.step(logged("aer_corrected"), logged("xid_31", GPU), logged("made_up_tomorrow"))
    assert node.causes == []
    texts = [each.text for each in node.scene.events if each.kind == "log"]
    assert texts == [
        "gpu001 r0: a PCIe error that the link corrected; many of them slow the device down",
        f"gpu001 {GPU}: Xid 31: a program on the GPU used an address that is not mapped",
        "gpu001 r0: the line",
    ]


def test_a_device_that_is_no_port_is_named_by_its_address() -> None:
    node = Node()
    node.step()
    node.step(logged("xid_79", GPU))
    (finding,) = node.scene.findings
    assert finding.subject == f"gpu001/{GPU}"
    assert finding.unseen
    assert "nvidia-smi" in finding.advice


def test_a_loaded_driver_ends_what_failed_of_all_its_devices() -> None:
    messages = [
        logged("xid_79", GPU),
        logged("mlx5_health"),
        logged("xid_119", "0000:60:00.0"),
        logged("nvidia_loaded", ""),
    ]
    assert list(failed_devices(messages)) == [NIC]
    assert list(failed_devices(messages[::-1])) == ["0000:60:00.0", NIC, GPU]


def test_a_node_that_logs_without_end_keeps_its_fatal_messages_and_no_more_than_it_may() -> None:
    logs = KernelLogs()
    logs.add("gpu001", logged("xid_79", GPU), 1)
    for number in range(10_000):
        logs.add("gpu001", logged("aer_corrected", str(number)), number)
    assert len(logs.of("gpu001")) == MOST_KINDS
    assert list(failed_devices(logs.of("gpu001"))) == [GPU]
    node = Node()
    for _ in range(60):
        node.step(*(logged("aer_corrected", f"{node.second}-{n}") for n in range(60)))
    events = [each for each in node.scene.events if each.kind == "log"]
    assert len(events) == 20, "its share of the timeline"


def test_what_is_fatal_survives_in_the_state_of_a_recording_with_its_time() -> None:
    session = SessionRecord(started_ns=START_NS, interval_s=1.0, hosts=(Host(name="gpu001"),))
    state = RecordedState(session)
    first = tick(0, {}, {"gpu001": hello(port("eth0", pci=NIC), boot_id="one")}, up("gpu001"))
    state.apply(first)
    state.apply(with_notices(tick(1), logged("mlx5_health")))
    record, hellos = state.record(900, START_NS + 900 * 10**9)
    again = RecordedState.of(
        msgspec.json.decode(msgspec.json.encode(record), type=type(record)),
        hellos,
    )
    opening = again.tick(900, START_NS + 900 * 10**9)
    pipeline = new_pipeline([Host(name="gpu001")])
    scene = pipeline.accept(opening)
    assert [each.cause for each in scene.findings] == ["driver_failed"]
    assert not [each for each in scene.events if each.kind == "log"], "it is no event of that tick"
    (message,) = scene.snapshot.logs["gpu001"]
    assert message.logged_ns == START_NS + 10**9


def test_a_recorded_event_is_read_back_as_it_came() -> None:
    event = EventsRecord.of(with_notices(tick(1), logged("xid_74", GPU)))
    assert event is not None
    data = msgspec.json.encode(event)
    assert b"logged_ns" not in data
    assert msgspec.json.decode(data, type=EventsRecord) == event


def test_a_redacted_message_has_its_kind_and_not_its_text() -> None:
    notice = logged("xid_79", GPU, "NVRM: Xid (PCI:0000:5f:00): 79, pid=1, name=secret")
    (_, shown), *_ = Redactor().tick(with_notices(tick(0), notice)).notices
    assert shown.text == ""
    assert "secret" not in str(shown)
    assert message_text(shown, None).endswith("does not answer on PCIe any more")


@pytest.mark.parametrize("given", [{"logged_ns": 5}, {"logged_ns": "x"}, {"logged_ns": None}])
def test_a_node_has_no_say_in_the_time_of_a_message(given: dict[str, object]) -> None:
    line = wire.notice(LOGGED, "kernel_log", "x", NIC, "xid_79")
    kind, body = json.loads(line)
    text = json.dumps([kind, {**body, **given}])
    if given["logged_ns"] == 5:
        assert isinstance(decode(text.encode()), Notice)
    else:
        with pytest.raises(Exception, match="not a wire message"):
            decode(text.encode())
