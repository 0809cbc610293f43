"""A server that speaks RAS' protocol as NCCL's user guide has it ("RAS"), and that misbehaves.

It is our own: no job of NCCL was asked in these tests. Answers have the fields of the user guide's
samples.
"""

from __future__ import annotations

import contextlib
import json
import socket
import threading
from typing import Any

Status = dict[str, Any]


def rank(number: int, host: str, launched: int, **facts: Any) -> Status:
    """A rank with a number of AllReduce operations; eight GPUs a node."""
    return {
        "rank": number,
        "host": host,
        "pid": 1000 + number,
        "cuda_dev": number % 8,
        "nvml_dev": number % 8,
        "status": {
            "init_state": 0,
            "async_error": 0,
            "finalize_called": False,
            "destroy_flag": False,
            "abort_flag": False,
            **facts,
        },
        "collective_counts": {"AllGather": 3, "AllReduce": launched},
    }


def missing(number: int, host: str, *, dead: bool) -> Status:
    """A rank that did not answer."""
    return {
        **{
            key: value for key, value in rank(number, host, 0).items() if key != "collective_counts"
        },
        "status": {"unresponsive": True, "considered_dead": dead},
    }


def status(
    ranks: list[Status],
    missing_ranks: list[Status] | None = None,
    *,
    version: str = "2.29.3",
    time: str = "2026-05-04 20:01:00",
    **more: Any,
) -> bytes:
    """An answer as JSON."""
    lost = missing_ranks or []
    answer = {
        "nccl_version": version,
        "cuda_runtime_version": 13000,
        "cuda_driver_version": 13000,
        "timestamp": time,
        "communicators_count": 1,
        "communicators": [
            {
                "hash": "0xae94423cfbb2ef4a",
                "secondary_hash": "0xb7e7187447156001:0xb8242ed28a71381e",
                "size": len(ranks) + len(lost),
                "ranks_count": len(ranks),
                "missing_ranks_count": len(lost),
                "ranks": ranks,
                "missing_ranks": lost,
            }
        ],
        "ras": {"collection_time_sec": 0.02, "timeouts_count": len(lost)},
        **more,
    }
    return json.dumps(answer, indent=2).encode()


class RasServer:
    """Answers on a port of localhost. `received` are the commands of all connections.

    `replies` replace the answer to a command: bytes, or None to stay silent. `trickle` sends the
    status byte by byte, `keep_open` does not close the connection after it.
    """

    def __init__(
        self,
        answer: bytes = b"",
        replies: dict[str, bytes | None] | None = None,
        *,
        flood: str = "",
        trickle: bool = False,
        keep_open: bool = False,
    ) -> None:
        self.received: list[str] = []
        self.connections = 0
        self._answer = answer
        self._replies = replies or {}
        self._flood = flood
        self._trickle = trickle
        self._keep_open = keep_open
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._done = threading.Event()
        self._serving = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> RasServer:
        self._serving.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        # Closing alone does not wake the thread that accepts.
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._serving.join()
        self._listener.close()

    @property
    def target(self) -> str:
        """`HOST:PORT`."""
        return f"127.0.0.1:{self.port}"

    def _serve(self) -> None:
        while not self._done.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._talk, args=(connection,), daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        try:
            with connection, connection.makefile("rb") as lines:
                for line in lines:
                    command = line.decode().strip()
                    self.received.append(command)
                    if not self._reply(connection, command):
                        return
        except OSError:
            return

    def _reply(self, connection: socket.socket, command: str) -> bool:
        """Whether the connection stays."""
        word = next((each for each in self._replies if command.startswith(each)), None)
        if self._flood and command.startswith(self._flood):
            while not self._done.is_set():
                connection.sendall(b"x" * (1 << 20))
        if word is not None:
            reply = self._replies[word]
            if reply is None:
                self._done.wait(240)
                return False
            connection.sendall(reply)
            return bool(reply)
        if command.startswith("CLIENT PROTOCOL "):
            connection.sendall(b"SERVER PROTOCOL 2\n")
        elif command == "STATUS":
            for start in range(0, len(self._answer), 1 if self._trickle else len(self._answer)):
                connection.sendall(
                    self._answer[start : start + 1] if self._trickle else self._answer
                )
            if self._keep_open:
                self._done.wait(240)
            return False
        elif command.startswith(("TIMEOUT ", "SET FORMAT ")):
            connection.sendall(b"OK\n")
        else:
            connection.sendall(f"ERROR: Unknown command {command}\n".encode())
        return True
