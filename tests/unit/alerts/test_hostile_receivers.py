"""Receivers that refuse single alerts, quote secrets, or answer by half."""

from __future__ import annotations

import asyncio
import errno
import json
import socket
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from fabmon import secret_files
from fabmon.alerts.alert import Alert, AlertBook, AlertRules
from fabmon.alerts.delivery import Delivery
from fabmon.alerts.http_post import HttpPoster
from fabmon.alerts.notifier import Notifier, alert_record
from fabmon.alerts.settings import DeliveryError, WebhookReceiver
from fabmon.analysis.finding import Change
from fabmon.limited_thread import LimitedThread
from fabmon.state_file import StateFile
from tests.unit.alerts.test_alert_book import alert, finding, outbox, scene
from tests.unit.alerts.test_alertmanager import until

RULES = AlertRules(min_severity="warning", causes=frozenset(), open_for_s=0.0, group_above=300)


class Refusing(Notifier):
    """Takes every message but those with an alert of a refused subject."""

    def __init__(self, refused: Sequence[str], batch: int = 1, status: int = 400) -> None:
        self.refused, self.batch, self.status = refused, batch, status
        self.taken: list[str] = []
        self.sizes: list[int] = []

    async def send(self, changes: Sequence[tuple[Change, Alert]]) -> None:
        subjects = [each.finding.subject for _, each in changes]
        self.sizes.append(len(subjects))
        if not set(subjects).isdisjoint(self.refused):
            raise DeliveryError(f"HTTP {self.status}", is_refusal=self.status == 413)
        self.taken += subjects

    async def close(self) -> None:
        """Nothing is open."""


async def sent(transport: Refusing, subjects: Sequence[str], tries: int) -> None:
    delivery = Delivery("hook", transport, RULES, 1000)
    delivery.accept(scene(*map(finding, subjects)))
    for _ in range(tries):
        await delivery.send_due()


@pytest.mark.parametrize("status", [400, 413, 500])
async def test_an_alert_that_is_refused_keeps_no_other_one_waiting(status: int) -> None:
    transport = Refusing(["b"], status=status)
    await sent(transport, ["a", "b", "c", "d"], tries=3)
    assert transport.taken == ["a", "c", "d"]


async def test_of_a_batch_that_is_too_large_all_but_the_alert_that_makes_it_so_is_sent() -> None:
    subjects = [f"gpu{number:03}" for number in range(150)]
    transport = Refusing(["gpu070"], batch=100, status=413)
    await sent(transport, subjects, tries=20)
    assert sorted(transport.taken) == [each for each in subjects if each != "gpu070"]


async def test_after_an_outage_a_batch_is_as_large_as_before() -> None:
    transport = Refusing(["gpu000"], batch=100, status=503)
    subjects = [f"gpu{number:03}" for number in range(100)]
    delivery = Delivery("am", transport, RULES, 1000)
    delivery.accept(scene(*map(finding, subjects)))
    for _ in range(9):
        await delivery.send_due()
    transport.refused = []
    await delivery.send_due()
    assert sorted(transport.taken) == subjects
    assert transport.sizes == [100] * 10


def test_ends_of_what_a_receiver_has_are_given_up_last() -> None:
    box = outbox()
    box.accept({"x": alert("sent")}, now_ns=1)
    box.delivered(box.due(0, 10), 0)
    for number in range(1500):
        box.accept({"x": alert(f"a{number}")}, now_ns=number)
    box.accept({}, now_ns=1500)
    assert box.given_up == 501
    assert box.due(0, 1)[0].id == "sent"


@contextmanager
def answering(answer: bytes, *, resets: bool = False) -> Iterator[str]:
    """A server that answers any request so, and then says nothing more, or resets."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        kept = []

        def serve() -> None:
            connection, _ = server.accept()
            kept.append(connection)
            connection.recv(1 << 16)
            connection.sendall(answer)
            if resets:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
                connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}"
        finally:
            thread.join()
            for each in kept:
                each.close()


async def refusal(receiver: WebhookReceiver, path: str, answer: bytes, **how: bool) -> str:
    """What is logged of an answer."""
    with answering(answer, **how) as url:
        poster = HttpPoster(receiver)
        try:
            async with asyncio.timeout(5):
                await poster.post(url + path, b"{}")
        except DeliveryError as error:
            return str(error)
        finally:
            await poster.close()
    return ""


async def test_what_a_receiver_quotes_of_its_address_and_the_token_is_not_logged(
    tmp_path: Path,
) -> None:
    token = tmp_path / "token"
    token.write_text("T0KEN\n")
    token.chmod(0o600)
    receiver = WebhookReceiver(url="http://127.0.0.1", token_file=str(token))
    body = b"Cannot POST /hook/T0/S3CRET?key=K3Y with Bearer T0KEN, nor /hook/T0/S3CRET"
    head = b"HTTP/1.1 404 Not Found\r\nContent-Length: %d\r\n\r\n" % len(body)
    said = await refusal(receiver, "/hook/T0/S3CRET?key=K3Y", head + body)
    assert said == "HTTP 404 Cannot POST … with …, nor …"
    token.write_text("fabmon:P4SSWORD\n")
    receiver = WebhookReceiver(url="http://127.0.0.1", password_file=str(token))
    body = b"P4SSWORD is not that of fabmon"
    head = b"HTTP/1.1 404 Not Found\r\nContent-Length: %d\r\n\r\n" % len(body)
    assert await refusal(receiver, "/", head + body) == "HTTP 404 … is not that of fabmon"
    token.write_text("fabmon:a\n")
    said = await refusal(receiver, "/", head + body)
    assert said == f"HTTP 404 {body.decode()}", "marks in place of each a would say what it is"


@pytest.mark.parametrize("resets", [False, True])
async def test_an_error_whose_text_does_not_come_is_still_that_error(
    resets: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fabmon.alerts.http_post._QUOTED_WITHIN_S", 0.2)
    half = b"HTTP/1.1 500 Oh\r\nContent-Length: 100\r\n\r\nour data"
    said = await refusal(WebhookReceiver(url="http://127.0.0.1"), "/", half, resets=resets)
    assert said in ("HTTP 500", "HTTP 500 our data")


@pytest.mark.parametrize("resets", [False, True])
async def test_a_receiver_that_took_a_message_is_not_waited_for(resets: bool) -> None:
    half = b"HTTP/1.1 202 Accepted\r\nContent-Length: 100\r\n\r\n" + json.dumps({"ok": 0}).encode()
    assert await refusal(WebhookReceiver(url="http://127.0.0.1"), "/", half, resets=resets) == ""


class Hanging(StateFile[Alert]):
    """A state file on a file system that does not answer, or is full, until it is `released`."""

    def __init__(self, *, is_full: bool = False) -> None:
        super().__init__(Alert, "alerts", "pod7", "hook")
        self.is_full = is_full
        self.released = threading.Event()
        self.saved: list[str] = []
        self.calls = 0

    def save(self, items: Iterable[Alert]) -> None:
        self.calls += 1
        if self.is_full and not self.released.is_set():
            raise OSError(errno.ENOSPC, "No space left on device")
        self.released.wait(20)
        self.saved = [each.finding.subject for each in items]


@pytest.mark.parametrize("is_full", [False, True])
async def test_alerts_do_not_wait_for_a_state_directory_that_does_not_answer(
    is_full: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("fabmon.alerts.delivery._MOST_SAVE_S", 0.05)
    monkeypatch.setattr("fabmon.alerts.delivery._LAST_RETRY_S", 0.1)
    transport, memory = Refusing([]), Hanging(is_full=is_full)
    delivery = Delivery("hook", transport, RULES, 1000, memory)
    running = asyncio.create_task(delivery.run())
    try:
        for subjects in (["a"], ["a", "b"], ["a", "b", "c"]):
            delivery.accept(scene(*map(finding, subjects)))
            await asyncio.sleep(0.3)
        assert transport.taken == ["a", "b", "c"]
        why = "No space left on device" if is_full else "its file system does not answer"
        assert caplog.messages == [
            f"{memory.path}: {why}: after a restart alerts to hook may be sent twice"
        ]
        assert is_full or memory.calls == 1, "no second thread waits"
        memory.released.set()
        await asyncio.to_thread(until, lambda: memory.saved == ["a", "b", "c"], 20)
    finally:
        memory.released.set()
        running.cancel()
        await asyncio.wait([running])
        await delivery.finish()


class Late(StateFile[Alert]):
    """What the last run sent, on a file system that fails until it is `mounted`."""

    def __init__(self, sent: Iterable[Alert]) -> None:
        super().__init__(Alert, "alerts", "pod7", "hook")
        self.sent = list(sent)
        self.is_mounted = False

    def load(self) -> list[Alert]:
        if not self.is_mounted:
            raise OSError(errno.EIO, "Input/output error")
        return self.sent


async def test_what_the_last_run_sent_is_not_sent_again_once_its_findings_are_known(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Both are kept on one file system: what becomes known late does so at once."""
    again = scene(finding("a"))
    transport, memory = Refusing([]), Late(AlertBook(RULES).accept(again).values())
    are_known = asyncio.Event()
    delivery = Delivery("hook", transport, RULES, 1000, memory, are_known)
    running = asyncio.create_task(delivery.run())
    try:
        await asyncio.to_thread(until, lambda: "may be sent twice" in caplog.text, 20)
        memory.is_mounted = True
        are_known.set()
        delivery.recall()
        delivery.accept(again)
        delivery.accept(scene(finding("a"), finding("b")))
        await asyncio.to_thread(until, lambda: "b" in transport.taken, 20)
        assert transport.taken == ["b"]
    finally:
        running.cancel()
        await asyncio.wait([running])
        await delivery.finish()


async def test_what_is_slow_at_the_end_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The state directory, not the receiver, which has answered."""
    monkeypatch.setattr("fabmon.alerts.delivery._MOST_SAVE_S", 0.5)
    monkeypatch.setattr("fabmon.alerts.delivery._LAST_WORDS_S", 0.1)
    transport, memory = Refusing([]), Hanging()
    delivery = Delivery("hook", transport, RULES, 1000, memory)
    running = asyncio.create_task(delivery.run())
    try:
        delivery.accept(scene(finding("a")))
        await asyncio.to_thread(until, lambda: memory.calls == 1, 20)
        running.cancel()
        await asyncio.wait([running])
        await delivery.finish()
        why = "its file system does not answer: after a restart alerts to hook may be sent twice"
        assert caplog.messages == [f"{memory.path}: {why}"]
    finally:
        memory.released.set()


@pytest.mark.parametrize("fails", [False, True])
async def test_alerts_that_are_not_sent_when_a_run_ends_are_counted(
    fails: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("fabmon.alerts.delivery._LAST_WORDS_S", 0.1)
    transport = Refusing(list("abc") if fails else [])
    delivery = Delivery("hook", transport, RULES, 1, None)
    running = asyncio.create_task(delivery.run())
    delivery.accept(scene(*map(finding, "abc")))
    await asyncio.sleep(0.3)
    running.cancel()
    await asyncio.wait([running])
    await delivery.finish()
    assert caplog.messages[-1] == (
        f"alerts to hook: {3 if fails else 2} were not sent when fabmon ended: those still open"
        " after a restart are sent then"
    )


async def test_a_token_that_cannot_be_read_in_time_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    released = threading.Event()
    receiver = WebhookReceiver(url="http://127.0.0.1:9", token_file="/home/token")
    poster = HttpPoster(receiver)
    monkeypatch.setattr(poster, "_thread", LimitedThread(0.1))
    monkeypatch.setattr(secret_files, "read_secret", lambda _: str(released.wait(20)))
    try:
        for _ in range(2):
            with pytest.raises(DeliveryError, match="cannot be read in"):
                await poster.post(receiver.url or "", b"{}")
        assert sum(each.name.startswith("asyncio") for each in threading.enumerate()) <= 2
    finally:
        released.set()
        await poster.close()


def test_a_group_of_thousands_is_a_body_that_receivers_take() -> None:
    named = tuple(f"gpu{number}/{'x' * 64}" for number in range(16_000))
    group = msgspec.structs.replace(alert("incast:more"), others=named)
    record = alert_record(Change.OPEN, group, "pod7")
    assert (record.findings, record.others) == (16_000, list(named[:256]))
    assert len(msgspec.json.encode(record)) < 100_000
