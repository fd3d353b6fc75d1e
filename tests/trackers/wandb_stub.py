"""A minimal W&B server on loopback, for one run, one sync and one report; it keeps all requests."""

from __future__ import annotations

import json
import re
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

PROJECT = {
    "id": "p1",
    "internalId": "1",
    "name": "trees",
    "entityName": "us",
    "entity": {"id": "e1", "name": "us"},
}


class WandbStub(ThreadingHTTPServer):
    """Use as a context manager; `url` is its WANDB_BASE_URL.

    Attributes:
        operations: names of the GraphQL operations, in order.
        runs: variables of each UpsertBucket, by run id.
        history: rows that arrived by the file stream, in order.
        views: saved reports, variables of upsertView.
        files: bodies of uploaded files, by path.
    """

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.operations: list[str] = []
        self.runs: dict[str, dict[str, Any]] = {}
        self.history: list[dict[str, Any]] = []
        self.summary: dict[str, Any] = {}
        self.exit_code: int | None = None
        self.views: list[dict[str, Any]] = []
        self.files: dict[str, bytes] = {}

    def __enter__(self) -> WandbStub:
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore clients that disconnect; a wrong answer fails the test elsewhere."""

    def answer(self, operation: str, query: str, given: dict[str, Any]) -> dict[str, Any]:
        """The `data` of a GraphQL answer."""
        if operation == "UpsertBucket":
            name = given.get("name") or given["id"]
            self.runs.setdefault(name, {}).update({k: v for k, v in given.items() if v is not None})
            bucket = {
                "id": f"bucket-{name}",
                "name": name,
                "displayName": name,
                "project": PROJECT,
                "historyLineCount": 0,
            }
            return {"upsertBucket": {"bucket": bucket, "inserted": True}}
        if operation == "CreateArtifact":
            # COMMITTED: the server has it already, nothing is to be uploaded.
            sequence = {
                "id": "s1",
                "name": "table",
                "latestArtifact": {"id": "a1", "versionIndex": 0},
            }
            return {
                "createArtifact": {
                    "artifact": {"id": "a1", "state": "COMMITTED", "artifactSequence": sequence}
                }
            }
        if operation == "upsertView":
            self.views.append(given)
            view = {
                "id": "v1",
                "type": "runs",
                "name": given["name"],
                "displayName": given["displayName"],
            }
            view |= {"description": given["description"], "project": PROJECT, "spec": given["spec"]}
            return {
                "upsertView": {
                    "view": {**view, "updatedAt": "2026-01-01T00:00:00"},
                    "inserted": True,
                }
            }
        if operation == "CreateRunFiles":
            files = [
                {"name": name, "displayName": name, "uploadUrl": f"{self.url}/upload/{name}"}
                for name in given["files"]
            ]
            return {"createRunFiles": {"runID": "r", "uploadHeaders": [], "files": files}}
        viewer = {
            "id": "u1",
            "entity": "us",
            "username": "us",
            "flags": "{}",
            "teams": {"edges": []},
        }
        edges = {
            "edges": [
                {
                    "node": {
                        **PROJECT,
                        "createdAt": "2026-01-01T00:00:00",
                        "isBenchmark": False,
                        "user": None,
                    },
                    "cursor": "c",
                }
            ]
        }
        page = {**edges, "pageInfo": {"endCursor": None, "hasNextPage": False}}
        return {
            "viewer": viewer,
            "serverInfo": {
                "features": [],
                "cliVersionInfo": {"max_cli_version": "9.0.0"},
                "latestLocalVersionInfo": None,
            },
            "project": {**PROJECT, "artifact": None, "run": None},
            "model": {**PROJECT, "bucket": None},
            "models": page,
            "entity": {"projects": page},
            "updateArtifact": {"artifact": {"id": "a1"}},
            "useArtifact": {"artifact": {"id": "a1"}},
        }


class _Handler(BaseHTTPRequestHandler):
    server: WandbStub
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.path.startswith("/sdk/"):  # the client's own telemetry, not JSON
            self._send({})
            return
        sent = json.loads(body) if body else {}
        if self.path == "/graphql":
            query = sent["query"]
            found = re.search(r"(?:query|mutation)\s+(\w+)", query)
            operation = found.group(1) if found else ""
            self.server.operations.append(operation)
            answer = self.server.answer(operation, query, sent.get("variables") or {})
            self._send(
                {
                    "data": {
                        key: value
                        for key, value in answer.items()
                        if re.search(rf"\b{key}\b", query)
                    }
                }
            )
            return
        for name, part in (sent.get("files") or {}).items():
            lines = [json.loads(line) for line in part["content"]]
            if name == "wandb-history.jsonl":
                self.server.history += lines
            elif name == "wandb-summary.json":
                self.server.summary.update(lines[-1])
        if sent.get("complete"):
            self.server.exit_code = sent.get("exitcode")
        self._send({})

    def do_PUT(self) -> None:
        self.server.files[self.path.removeprefix("/upload/")] = self.rfile.read(
            int(self.headers["Content-Length"])
        )
        self._send({})

    def _send(self, value: dict[str, Any]) -> None:
        data = json.dumps(value).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: object) -> None:
        """Not on the console."""
