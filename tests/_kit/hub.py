"""A data hub on loopback: what the `datasets` library asks for one data set at one commit, over real HTTP."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread


@contextmanager
def hub(name: str, commit: str, files: Mapping[str, bytes]) -> Iterator[str]:
    """Serve the files of one data set; gives the hub's address, as HF_ENDPOINT takes it."""
    pages = _pages(name, commit, files)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            found = pages.get(self.path.partition("?")[0].rstrip("/"))
            body = found if found is not None else b"{}"
            self.send_response(404 if found is None else 200)
            self.send_header("ETag", f'"{_oid(body)}"')
            self.send_header("X-Repo-Commit", commit)
            self.send_header("Content-Length", str(len(body)))
            if found is None:
                self.send_header("X-Error-Code", "EntryNotFound")
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET  # noqa: N815

        def log_message(self, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def _pages(name: str, commit: str, files: Mapping[str, bytes]) -> dict[str, bytes]:
    api = f"/api/datasets/{name}"
    entries = [
        {"type": "file", "path": path, "size": len(body), "oid": _oid(body)} for path, body in files.items()
    ]
    pages = {f"{api}/revision/{commit}": _json({"id": name, "sha": commit, "tags": [], "siblings": []})}
    pages[f"{api}/tree/{commit}"] = _json(entries)
    for path, body in files.items():
        pages[f"/datasets/{name}/resolve/{commit}/{path}"] = body
    return pages


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


def _oid(body: bytes) -> str:
    return hashlib.sha1(body, usedforsecurity=False).hexdigest()
