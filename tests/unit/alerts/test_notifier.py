"""Webhooks and commands: bodies, signatures, templates, limits; one message per change."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

from fabmon.alerts.alert import Alert, AlertBook
from fabmon.alerts.delivery import Alerts
from fabmon.alerts.notifier import BUILT_IN, ExecTransport, WebhookTransport, schema
from fabmon.alerts.settings import (
    AlertsConfig,
    DeliveryError,
    ExecReceiver,
    SettingError,
    WebhookReceiver,
)
from fabmon.analysis.finding import Change
from fabmon.state_file import StateFile
from tests import work
from tests.goldens import check_golden
from tests.unit.alerts.alertmanager import Posts, posts
from tests.unit.alerts.test_alert_book import RULES, finding, outbox, scene
from tests.unit.alerts.test_alertmanager import SCENARIO, until
from tests.unit.jobs.test_squeue import is_running

SCHEMA = Path(__file__).parents[3] / "docs" / "alerts.schema.json"
ALERT = Alert(
    id="incast:leaf1/swp1",
    kind="incast",
    severity="critical",
    finding=finding('leaf1/swp1 {key} "quoted" <!channel>', severity="critical"),
    node="leaf1",
    port="swp1",
)


@pytest.fixture
def hook() -> Iterator[Posts]:
    with posts() as kept:
        yield kept


async def post(hook: Posts, change: Change = Change.OPEN, **settings: Any) -> Any:
    """The body that a webhook with these settings is posted."""
    receiver = WebhookReceiver(url=hook.url, **settings)
    transport = WebhookTransport(receiver, "pod7", "http://wiki.example/fabmon")
    try:
        await transport.send([(change, ALERT)])
    finally:
        await transport.close()
    return json.loads(hook.bodies[-1])


def test_the_schema_is_the_committed_one() -> None:
    check_golden(SCHEMA, schema().decode())


async def test_a_webhook_is_posted_a_signed_record(hook: Posts, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("open sesame\n")
    secret.chmod(0o644)
    with pytest.raises(DeliveryError, match=f"others can read it: chmod 600 {secret}"):
        await post(hook, secret_file=str(secret))
    secret.chmod(0o600)
    body = await post(hook, secret_file=str(secret))
    jsonschema.validate(body, json.loads(SCHEMA.read_text()))
    assert (body["change"], body["cluster"], body["node"]) == ("open", "pod7", "leaf1")
    headers = hook.headers[-1]
    signed = headers["X-Fabmon-Timestamp"].encode() + b"." + hook.bodies[-1]
    digest = hmac.new(b"open sesame", signed, hashlib.sha256).hexdigest()
    assert headers["X-Fabmon-Signature"] == f"sha256={digest}"
    assert abs(int(headers["X-Fabmon-Timestamp"]) - time.time()) < 60


@pytest.mark.parametrize("name", BUILT_IN)
async def test_a_template_is_filled_and_values_cannot_change_it(
    hook: Posts, tmp_path: Path, name: str
) -> None:
    key = tmp_path / "key"
    key.write_text("routing-key\n")
    key.chmod(0o600)
    body = await post(hook, template=name, key_file=str(key), fields={"topic": "fabric"})
    text = json.dumps(body)
    # What an alert says is no template: the key is not put into it.
    assert text.count("routing-key") == (name == "pagerduty")
    assert 'leaf1/swp1 {key} \\"quoted\\"' in text
    assert ("<!channel>" in text) == (name != "slack")
    if name == "ntfy":
        assert (body["topic"], body["priority"]) == ("fabric", 5)
    if name == "pagerduty":
        assert (body["event_action"], body["dedup_key"]) == ("trigger", "pod7:incast:leaf1/swp1")
        closed = await post(hook, Change.CLOSE, template=name, key_file=str(key))
        assert (closed["event_action"], closed["dedup_key"]) == ("resolve", body["dedup_key"])


async def test_an_address_of_a_file_gets_no_secret_in_clear_text(tmp_path: Path) -> None:
    address = tmp_path / "url"
    address.write_text("http://chat.example/hook/T0KEN\n")
    address.chmod(0o600)
    transport = WebhookTransport(WebhookReceiver(url_file=str(address)), "pod7", "")
    with pytest.raises(DeliveryError, match=r"would be sent to chat\.example in clear text"):
        await transport.send([(Change.OPEN, ALERT)])
    await transport.close()


def test_a_template_that_cannot_be_filled_is_refused_before_the_run(tmp_path: Path) -> None:
    def refused(**settings: Any) -> str:
        with pytest.raises(SettingError) as error:
            WebhookTransport(WebhookReceiver(url="http://127.0.0.1:9", **settings), "", "")
        return str(error.value)

    assert refused(template="pagerduty") == "the template needs key_file"
    assert "needs topic: set them in fields" in refused(template="ntfy")
    assert "write the path of a file, or one of slack" in refused(template="slakc")
    bad = tmp_path / "bad.json"
    bad.write_text("{")
    assert "bad.json" in refused(template=str(bad))


async def test_errors_name_no_address_and_redirects_are_not_followed(hook: Posts) -> None:
    for status in (301, 500):
        hook.status = status
        with pytest.raises(DeliveryError, match=f"HTTP {status}") as error:
            await post(hook)
        assert "127.0.0.1" not in str(error.value)


async def test_a_command_reads_the_record_and_no_shell_reads_the_command(tmp_path: Path) -> None:
    out = tmp_path / "a;b $(c)"
    receiver = ExecReceiver(command=("tee", str(out)))
    await ExecTransport(receiver, "pod7").send([(Change.CLOSE, ALERT)])
    body = json.loads(out.read_text())
    jsonschema.validate(body, json.loads(SCHEMA.read_text()))
    assert body["change"] == "close"


def test_a_command_that_hangs_is_ended_with_what_it_started(tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    script = f"sleep 60 & echo $! > {pid}; wait"
    receiver = ExecReceiver(command=("sh", "-c", script), timeout_s=2)
    with pytest.raises(DeliveryError, match="more than 2 s"):
        asyncio.run(ExecTransport(receiver, "").send([(Change.OPEN, ALERT)]))
    process = int(pid.read_text())
    until(lambda: not is_running(process))


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        (("/nonexistent",), "/nonexistent: No such file"),
        (("sh", "-c", "echo bad >&2; exit 3"), "exited with 3 bad"),
    ],
)
async def test_a_command_that_fails_is_an_error(command: tuple[str, ...], complaint: str) -> None:
    with pytest.raises(DeliveryError, match=complaint):
        await ExecTransport(ExecReceiver(command=command), "").send([(Change.OPEN, ALERT)])


def test_what_was_sent_is_remembered_by_one_process_at_a_time() -> None:
    first, second, other = (
        StateFile(Alert, "alerts", cluster, "pager") for cluster in ("pod7", "pod7", "pod8")
    )
    assert other.path != first.path
    assert first.acquire()
    assert not second.acquire()
    first.save([ALERT])
    assert first.path.stat().st_mode & 0o777 == 0o600
    first.release()
    assert second.acquire()
    assert second.load() == [ALERT]
    second.path.write_text("[{")
    assert second.load() == []
    second.release()


def test_what_an_earlier_run_sent_is_closed_when_it_is_not_open_any_more() -> None:
    gone, there = ALERT, Alert(id="b", kind="b", severity="note", finding=finding("b"))
    box = outbox()
    box.inherit([gone, there])
    box.accept({"a": gone, "b": there}, now_ns=2)
    assert box.due(0, 10) == []
    box.accept({"b": there}, now_ns=3)
    (closed,) = box.due(0, 10)
    assert (closed.id, box.change(closed)) == (gone.id, Change.CLOSE)


def test_what_an_earlier_run_sent_may_become_known_once_alerts_are_sent() -> None:
    """As from a state directory that answers late."""
    book = AlertBook(msgspec.structs.replace(RULES, group_above=1))
    box = outbox()
    again = scene(finding("a"), finding("b"), finding("c"))
    opened = book.accept(again)
    box.accept(opened, now_ns=1)
    box.delivered([opened["incast:a"]], now_s=1)
    shared = opened["incast:more"]
    kept = [opened["incast:a"], msgspec.structs.replace(opened["incast:a"], id="incast:b"), shared]
    book.inherit(kept)
    box.inherit([msgspec.structs.replace(opened["incast:a"], severity="note"), shared])
    assert book.accept(again) == opened, "each in one alert"
    assert sorted(each.severity for each in box.held()) == ["warning", "warning"]
    assert box.due(1, 10) == [], "the receiver has both"


def test_killed_and_restarted_a_webhook_is_posted_each_change_once(
    hook: Posts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    config, scenario = tmp_path / "fabmon.toml", tmp_path / "scenario.toml"
    config.write_text(
        "[alerts]\nkeep_open_s = 0\n"
        f'[alerts.receivers.hook]\ntype = "webhook"\nurl = "{hook.url}"\n'
    )
    command = [sys.executable, "-m", "tests.unit.alerts.played_fabric", str(config), str(scenario)]

    def watch(fault_s: float) -> subprocess.Popen[bytes]:
        scenario.write_text(SCENARIO.format(seconds=fault_s))
        return subprocess.Popen([*command, "10", "900"], stdout=subprocess.DEVNULL)

    def changes() -> list[str]:
        return [each["change"] for each in hook.objects()]

    first = watch(1000)
    beside = watch(1000)
    try:
        until(lambda: list((tmp_path / "state").glob("fabmon/alerts/*.json")))
        time.sleep(2)
        assert changes() == ["open"]
    finally:
        for each in (first, beside):
            each.kill()
            each.wait()
    second = watch(30)
    try:
        until(lambda: "close" in changes(), 60)
        assert changes() == ["open", "close"]
        opened, closed = hook.objects()
        assert opened["id"] == closed["id"]
    finally:
        second.kill()
        second.wait()


async def run_that_ends_while_posting(url: str, received: threading.Event) -> None:
    """Alerts of one run, which ends as soon as the webhook has received the first message."""
    config = AlertsConfig(receivers={"hook": WebhookReceiver(url=url)})
    async with Alerts(config, "pod7", "pod7") as alerts:
        alerts.accept(scene(finding("gpu001"), time_s=1))
        await asyncio.to_thread(received.wait, 10)


@pytest.mark.parametrize("answers", [True, False])
async def test_a_run_that_ends_while_a_webhook_is_posted_waits_for_the_answer(
    answers: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("fabmon.alerts.delivery._LAST_WORDS_S", 30.0 if answers else 0.3)
    received, released = threading.Event(), threading.Event()

    def wait(_: bytes) -> None:
        received.set()
        released.wait(1 if answers else 20)

    with posts(wait) as slow:
        try:
            await run_that_ends_while_posting(slow.url, received)
        finally:
            released.set()
        assert len(slow.bodies) == 1
        again = "alerts to hook: no answer to the last message when fabmon ended: it may be sent"
        assert [text.startswith(again) for text in caplog.messages] == [True] * (not answers)
        config = AlertsConfig(receivers={"hook": WebhookReceiver(url=slow.url)})
        async with Alerts(config, "pod7", "pod7") as restarted:
            restarted.accept(scene(finding("gpu001"), time_s=2))
            if answers:
                restarted.accept(scene(finding("gpu001"), finding("gpu002"), time_s=3))
            await asyncio.to_thread(until, lambda: len(slow.bodies) > 1)
        second = slow.objects()[1]
        assert (len(slow.bodies), second["id"]) == (2, f"incast:gpu00{2 if answers else 1}")


async def test_ten_thousand_findings_in_a_minute_are_few_messages(hook: Posts) -> None:
    """Four causes on 2,500 nodes each; every finding lasts three ticks of the minute."""
    config = AlertsConfig(receivers={"hook": WebhookReceiver(url=hook.url)}, keep_open_s=0)
    causes = ("incast", "slow_receiver", "host_pcie_limit", "link_errors")
    every = [finding(f"gpu{number:05}", causes[number % 4]) for number in range(10_000)]
    async with Alerts(config, "pod7", "pod7") as alerts:
        for tick in range(60):
            shown = every[max(0, tick - 2) * 167 : (tick + 1) * 167]
            with work.counted() as done:
                alerts.accept(scene(*shown, time_s=tick))
            await asyncio.sleep(0.03)
        alerts.accept(scene(time_s=61))
        await asyncio.to_thread(until, lambda: len(hook.bodies) >= 60)
        await asyncio.sleep(0.5)
    assert len(hook.bodies) == 60, "as many as a minute may have; the others wait"
    changes = [(each["id"], each["change"]) for each in hook.objects()]
    assert ("incast:more", "open") in changes[:4], "what is above 20 shares an alert, sent first"
    single = [change for change in changes if not change[0].endswith(":more")]
    assert len(single) == len(set(single)), "nothing is sent twice"
    assert done.lines < 100_000
