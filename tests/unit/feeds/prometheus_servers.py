"""Real servers for tests: Prometheus, VictoriaMetrics and what they scrape, on loopback."""

from __future__ import annotations

import contextlib
import json
import os
import random
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.requirements import need_command

PASSWORD = "open sesame"
_PATIENCE_S = 240
_HASH = "$2b$04$abcdefghijklmnopqrstuu/LVz6MZlItEy42I2juLihZ66HnQx/cy"

_AGENT = """
import asyncio, sys
from fabmon.agent.serve import ListenAddress
from fabmon.agent.serve import AgentOptions, serve
root, port, token = sys.argv[1:]
asyncio.run(serve(
    AgentOptions(
        address=ListenAddress("127.0.0.1", int(port)), token=token, interval_s=0.5, root=root
    ), print
))
"""
TOKEN = "a-token-of-the-tests"

Target = tuple[str, str, int, Mapping[str, str]]
"""Job, instance, port on loopback, more labels."""


def free_port() -> int:
    """A port that nobody has. It is none that the kernel gives to whoever asks for any: the test
    takes it later."""
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


class Daemon:
    """A process that serves HTTP; `start` returns when it is ready."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None

    def command(self) -> Sequence[str]:
        raise NotImplementedError

    ready = "/"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> Self:
        self.directory.mkdir(parents=True, exist_ok=True)
        with (self.directory / "log").open("ab") as log:
            self._process = subprocess.Popen(self.command(), stdout=log, stderr=log, env=_env())
        until_s = time.monotonic() + _PATIENCE_S
        while time.monotonic() < until_s:
            try:
                with urllib.request.urlopen(f"{self.url}{self.ready}", timeout=5):
                    return self
            except urllib.error.HTTPError as error:
                if error.code in (401, 403):
                    return self
            except OSError:
                pass
            assert self._process.poll() is None, (self.directory / "log").read_text()
            time.sleep(0.1)
        raise AssertionError((self.directory / "log").read_text())

    def stop(self) -> None:
        if self._process is not None:
            self._process.terminate()
            self._process.wait(_PATIENCE_S)
            self._process = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


class PrometheusServer(Daemon):
    """A server that scrapes `targets` every `interval_s`."""

    def __init__(
        self,
        directory: Path,
        targets: Iterable[Target] = (),
        *,
        secret: bool = False,
        rules: Path | None = None,
        interval_s: int = 1,
    ):
        super().__init__(directory)
        self._interval_s = interval_s
        self._targets = list(targets)
        self._rules = rules
        self._secret = secret

    def until_scraped(self, jobs: int, times: int = 3) -> None:
        """Wait until `jobs` targets were scraped `times` times."""
        query = f"count(count_over_time(up[1m]) >= {times})"
        path = f"/api/v1/query?nocache=1&query={urllib.parse.quote(query)}"
        until_s = time.monotonic() + _PATIENCE_S
        while time.monotonic() < until_s:
            result = self.answer(path)["result"]
            if result and int(result[0]["value"][1]) >= jobs:
                return
            time.sleep(0.1)
        raise AssertionError((self.directory / "log").read_text())

    def answer(self, path: str) -> Any:
        """The data that the server's API answers with."""
        with urllib.request.urlopen(f"{self.url}{path}", timeout=_PATIENCE_S) as answer:
            return json.load(answer)["data"]

    def _configured(self) -> Path:
        path = self.directory / "scrape.yml"
        jobs = []
        for job, instance, port, labels in self._targets:
            more = "".join(f", {name}: '{value}'" for name, value in labels.items())
            jobs.append(
                f"- job_name: '{job}-{port}'\n"
                f"  authorization: {{credentials: '{TOKEN}'}}\n"
                f"  relabel_configs: [{{target_label: job, replacement: '{job}'}}]\n"
                f"  static_configs:\n"
                f"  - targets: ['127.0.0.1:{port}']\n"
                f"    labels: {{instance: '{instance}'{more}}}\n"
            )
        path.write_text(
            f"global: {{scrape_interval: {self._interval_s}s, scrape_timeout: 1s}}\n"
            + (f"rule_files: ['{self._rules}']\n" if self._rules else "")
            + f"scrape_configs:{'' if jobs else ' []'}\n"
            + "".join(jobs)
        )
        return path


class Prometheus(PrometheusServer):
    ready = "/-/ready"

    def command(self) -> list[str]:
        need_command("prometheus", "prometheus")
        web = self.directory / "web.yml"
        web.write_text(f"basic_auth_users: {{fabmon: '{_HASH}'}}\n" if self._secret else "")
        return [
            "prometheus",
            f"--config.file={self._configured()}",
            f"--web.config.file={web}",
            f"--storage.tsdb.path={self.directory}/data",
            f"--web.listen-address=127.0.0.1:{self.port}",
        ]


class VictoriaMetrics(PrometheusServer):
    ready = "/health"

    def command(self) -> list[str]:
        need_command("victoria-metrics", "victoria-metrics")
        login = ["-httpAuth.username=fabmon", f"-httpAuth.password={PASSWORD}"]
        return [
            "victoria-metrics",
            f"-promscrape.config={self._configured()}",
            f"-storageDataPath={self.directory}/data",
            f"-httpListenAddr=127.0.0.1:{self.port}",
            "-retentionPeriod=1d",
            *(login if self._secret else []),
        ]

    def store(self, lines: Iterable[str]) -> None:
        """Import lines of `series value milliseconds`; afterwards queries return them."""
        body = "\n".join(lines).encode() + b"\n"
        for path, data in (("/api/v1/import/prometheus", body), ("/internal/force_flush", None)):
            with urllib.request.urlopen(f"{self.url}{path}", data=data, timeout=_PATIENCE_S):
                pass


class NodeExporter(Daemon):
    """A node_exporter that reads a tree, and `*.prom` in `textfiles`."""

    ready = "/"

    def __init__(self, directory: Path, root: Path, textfiles: Path | None = None) -> None:
        super().__init__(directory)
        self._root = root
        self._textfiles = textfiles

    def command(self) -> list[str]:
        need_command("prometheus-node-exporter", "prometheus-node-exporter")
        return [
            "prometheus-node-exporter",
            f"--path.sysfs={self._root}/sys",
            f"--path.procfs={self._root}/proc",
            "--collector.disable-defaults",
            "--collector.infiniband",
            *(
                ["--collector.textfile", f"--collector.textfile.directory={self._textfiles}"]
                if self._textfiles is not None
                else []
            ),
            f"--web.listen-address=127.0.0.1:{self.port}",
        ]


class Agent(Daemon):
    """A `fabmon agent` that reads a tree."""

    ready = "/healthz"

    def __init__(self, directory: Path, root: Path) -> None:
        super().__init__(directory)
        self._root = root

    def command(self) -> list[str]:
        return [sys.executable, "-c", _AGENT, str(self._root), str(self.port), TOKEN]


def _env() -> dict[str, str]:
    return dict(os.environ)
