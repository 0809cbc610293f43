"""A real Alertmanager on loopback, and a receiver that keeps what it notifies."""

from __future__ import annotations

import json
import threading
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.requirements import need_command
from tests.unit.feeds.prometheus_servers import Daemon


class Posts:
    """A server that keeps what it is posted; `status` is what it replies."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.headers: list[dict[str, str]] = []
        self.status = 200
        self.url = ""

    def objects(self) -> list[Any]:
        return [json.loads(body) for body in self.bodies]


@contextmanager
def posts(seen: Callable[[bytes], None] = lambda _: None, port: int = 0) -> Iterator[Posts]:
    """A server on loopback; `seen` is called with each body, from the server's thread."""
    kept = Posts()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if kept.status == 200:
                kept.bodies.append(body)
                seen(body)
                kept.headers.append(dict(self.headers))
            self.send_response(kept.status)
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    kept.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield kept
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Alertmanager(Daemon):
    """Notifies `hook` of every alert by itself, at once."""

    ready = "/-/ready"

    def __init__(self, directory: Path, hook: str) -> None:
        need_command("prometheus-alertmanager", "prometheus-alertmanager")
        super().__init__(directory)
        self._hook = hook

    def command(self) -> Sequence[str]:
        config = self.directory / "alertmanager.yml"
        config.write_text(
            "route: {receiver: hook, group_by: ['...'], group_wait: 0s, group_interval: 1s,"
            " repeat_interval: 1h}\n"
            f"receivers: [{{name: hook, webhook_configs: [{{url: '{self._hook}'}}]}}]\n"
        )
        return [
            "prometheus-alertmanager",
            f"--config.file={config}",
            f"--storage.path={self.directory / 'data'}",
            f"--web.listen-address=127.0.0.1:{self.port}",
            "--cluster.listen-address=",
        ]

    def alerts(self) -> list[dict[str, Any]]:
        """Those that are active."""
        with urllib.request.urlopen(f"{self.url}/api/v2/alerts", timeout=240) as reply:
            found: list[dict[str, Any]] = json.load(reply)
        return found
