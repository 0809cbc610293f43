"""`fabmon mcp`, asked by the client of the protocol's own package, as an assistant would."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from fabmon.query.answers import schema
from fabmon.query.questions import QUESTIONS
from tests.requirements import need_package

need_package("mcp")
if TYPE_CHECKING:
    from mcp import Client


FABMON = str(Path(sys.executable).with_name("fabmon"))


@asynccontextmanager
async def assistant(*arguments: str) -> AsyncIterator[Client]:
    """A client of a server that it started itself."""
    from mcp import Client, StdioServerParameters

    server = StdioServerParameters(command=FABMON, args=["mcp", *arguments])
    async with Client(server, read_timeout_seconds=60) as client:
        yield client


async def called(client: Client, name: str, **fields: Any) -> dict[str, Any]:
    result = await client.call_tool(name, fields)  # Checked with the tool's output schema.
    assert not result.is_error, result.content
    found: dict[str, Any] = result.structured_content
    jsonschema.validate(found, json.loads(schema()))
    (text,) = result.content
    assert json.loads(getattr(text, "text", "")) == found
    return found


async def test_the_tools_are_the_questions_and_all_only_read(recorded: Path) -> None:
    async with assistant(str(recorded)) as client:
        listed = (await client.list_tools()).tools
    assert [tool.name for tool in listed] == list(QUESTIONS)
    for tool in listed:
        assert tool.description
        assert tool.annotations is not None
        assert tool.annotations.read_only_hint is True
        assert tool.annotations.destructive_hint is False
        assert tool.input_schema["additionalProperties"] is False
        jsonschema.Draft202012Validator.check_schema(tool.input_schema)
        assert not {"path", "file", "command", "host"} & set(tool.input_schema["properties"])
        assert tool.output_schema is not None
        assert tool.output_schema["type"] == "object"
        jsonschema.Draft202012Validator.check_schema(tool.output_schema)
    job = next(tool for tool in listed if tool.name == "job")
    assert job.input_schema["required"] == ["job"]


async def test_why_is_the_job_slow(recorded: Path) -> None:
    """The way of an assistant: what there is, the job, then the port that it names."""
    async with assistant(str(recorded)) as client:
        status = await called(client, "status")
        assert status["jobs"] == 1
        job = await called(client, "job", job="8801", **{"from": "14:07", "to": "14:07:20"})
        (finding,) = job["findings"]
        assert finding["cause"] == "ecmp_collision"
        assert finding["evidence"]
        port = finding["ports"][0]
        curve = await called(client, "history", port=port, metrics=["tx_bps"])
        assert max(filter(None, curve["metrics"]["tx_bps"]["highest"])) > 0.95 * 400e9
        links = await called(client, "links", ports=[port], at="14:07:15")
        assert links["links"][0]["findings"] == [finding["key"]]


async def test_wrong_input_is_refused_with_what_to_write(recorded: Path) -> None:
    async with assistant(str(recorded)) as client:
        for name, fields, complaint in (
            ("links", {"limit": 10_000}, "limit"),
            ("links", {"limit": "many"}, "limit"),
            ("links", {"path": "/etc/passwd"}, "unknown field `path`"),
            ("history", {"port": "nosuch/port"}, "no port 'nosuch/port'"),
            ("history", {}, "port"),
            ("findings", {"from": "noon"}, "write a time such as 14:03"),
            ("job", {"job": "4711"}, "these run: job 8801"),
        ):
            result = await client.call_tool(name, fields)
            assert result.is_error, (name, fields)
            assert complaint in getattr(result.content[0], "text", "")
        assert (await called(client, "status"))["jobs"] == 1, "it goes on"


def test_what_is_no_message_is_answered_as_json_rpc_asks(recorded: Path) -> None:
    """A client that waits for an answer to each line waited without end."""
    lines = {
        b"hello": (-32700, None),
        b'{"jsonrpc": "2.0", "id": 1, "method": "ping"': (-32700, None),
        b"[" * 100_000: (-32700, None),
        b"\xff\xfe{}": (-32700, None),
        b'{"jsonrpc": "2.0", "id": "\\ud800", "method": "ping"}': (-32700, None),
        b"[]": (-32600, None),
        b"7": (-32600, None),
        b'{"id": 7, "method": "ping"}': (-32600, 7),
        b'{"jsonrpc": "2.0", "id": "a", "method": 1}': (-32600, "a"),
        b'{"jsonrpc": "2.0", "id": true, "method": "ping"}': (-32600, None),
        b'{"jsonrpc": "2.0", "id": 1.5, "method": "ping"}': (-32600, None),
    }
    text = b"\n\r\n".join([*lines, b""])
    done = subprocess.run([FABMON, "mcp", str(recorded)], input=text, capture_output=True)
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(each["error"]["code"], each["id"]) for each in answers] == list(lines.values())


def test_a_message_of_100_mb_is_refused_and_not_stored(recorded: Path) -> None:
    with subprocess.Popen(
        [FABMON, "mcp", str(recorded)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as server:
        assert server.stdin is not None
        assert server.stdout is not None

        def asked(identity: int, method: str, **parameters: Any) -> None:
            message = {"jsonrpc": "2.0", "id": identity, "method": method, "params": parameters}
            assert server.stdin is not None
            server.stdin.write(json.dumps(message).encode() + b"\n")
            server.stdin.flush()

        about = {"name": "test", "version": "1"}
        asked(1, "initialize", protocolVersion="2025-06-18", capabilities={}, clientInfo=about)
        assert json.loads(server.stdout.readline())["id"] == 1
        before_kb = _most_memory_kb(server.pid)
        asked(2, "ping", text="x" * 100_000_000)
        refused = json.loads(server.stdout.readline())
        assert refused["error"]["message"] == "a message of more than 1 MiB was not read"
        asked(3, "ping")
        assert json.loads(server.stdout.readline())["id"] == 3, "it goes on"
        assert _most_memory_kb(server.pid) < before_kb + 50_000
        server.stdin.close()


def _most_memory_kb(pid: int) -> int:
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0])


def _contents(path: Path) -> tuple[bytes, list[Path]]:
    return path.read_bytes(), sorted(path.parent.iterdir())


async def test_nothing_can_be_written(recorded: Path) -> None:
    before = _contents(recorded)
    async with assistant(str(recorded)) as client:
        for name in ("write", "record", "cut", "bookmark", "exec"):
            result = await client.call_tool(name, {})
            assert result.is_error
            assert "there is no question" in getattr(result.content[0], "text", "")
        for name, fields in (("links", {"at": "event 1"}), ("jobs", {}), ("findings", {})):
            await called(client, name, **fields)
    assert _contents(recorded) == before


async def test_without_a_recording_and_a_watch_it_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.unit.test_cli import fabmon

    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    done = fabmon("mcp")
    assert done.returncode == 2
    assert "no `fabmon watch` of this user runs on this machine: name a recording" in done.stderr
