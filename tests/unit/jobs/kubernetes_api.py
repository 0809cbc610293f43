"""As much of Kubernetes' API as `kubectl get pods` asks for, after its documentation."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Document = dict[str, Any]

_DISCOVERY: dict[str, Document] = {
    "/api": {"kind": "APIVersions", "versions": ["v1"]},
    "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": []},
    "/api/v1": {
        "kind": "APIResourceList",
        "groupVersion": "v1",
        "resources": [
            {
                "name": "pods",
                "singularName": "pod",
                "namespaced": True,
                "kind": "Pod",
                "verbs": ["get", "list"],
            }
        ],
    },
}


def pod(uid: str, namespace: str, name: str, node: str, gpus: int = 0, **labels: str) -> Document:
    """A pod that runs, with two containers; GPUs are those of the first."""
    limits = {"nvidia.com/gpu": str(gpus)} if gpus else {}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"uid": uid, "namespace": namespace, "name": name, "labels": labels},
        "spec": {
            "nodeName": node,
            "containers": [
                {"name": "main", "resources": {"limits": limits}},
                {"name": "sidecar", "resources": {}},
            ],
        },
        "status": {"phase": "Running", "startTime": "2026-05-04T20:01:00Z"},
    }


@contextmanager
def kubernetes_api(pods: list[Document]) -> Iterator[str]:
    """The address of a server that lists these pods."""
    documents = _DISCOVERY | {
        "/api/v1/pods": {
            "kind": "PodList",
            "apiVersion": "v1",
            "metadata": {"resourceVersion": "1"},
            "items": pods,
        }
    }

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            found = documents.get(self.path.partition("?")[0])
            body = json.dumps(found or {"kind": "Status", "status": "Failure"}).encode()
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
