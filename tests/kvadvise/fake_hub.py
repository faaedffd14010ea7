"""A hub on the loopback interface: repositories in memory, weight files of any apparent length, and all its moods."""

from __future__ import annotations

import json
import re
import threading
import time
from collections import Counter
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

import msgspec

COMMIT = "89abcdef0123456789abcdef0123456789abcdef"
_CHUNK = bytes(64 * 1024)


class File(msgspec.Struct, frozen=True):
    """A file by its first bytes; up to n_bytes it goes on with zeros."""

    head: bytes
    n_bytes: int

    @classmethod
    def of(cls, value: Any) -> File:
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        return cls(data, len(data))


class Repository(msgspec.Struct, kw_only=True):
    """What one repository holds and how it answers."""

    files: dict[str, File] = {}
    status: int = 200
    error_code: str = ""
    error_message: str = ""
    revisions: tuple[str, ...] = ("main", COMMIT)
    redirect: str = ""  # files are served from this address
    redirects_forever: bool = False
    knows_ranges: bool = True
    delay_s: float = 0.0  # before it is described
    file_delay_s: float = 0.0  # before each file
    fails_first: int = 0  # so many answers to a file are 503
    file_status: dict[str, int] = {}
    info: bytes | None = None  # in place of the description


class FakeHub:
    """The server; `sent_bytes` counts what each file cost, `seen` every request with its headers."""

    def __init__(self) -> None:
        self.repositories: dict[str, Repository] = {}
        self.sent_bytes: Counter[str] = Counter()
        self.failures: Counter[str] = Counter()
        self.seen: list[tuple[str, dict[str, str]]] = []
        self.lock = threading.Lock()
        hub = self

        class Handler(_Handler):
            pass

        Handler.hub = hub
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True)
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_address[1]}"

    def add(self, model_id: str, files: Mapping[str, Any] | None = None, **how: Any) -> Repository:
        made = {name: f if isinstance(f, File) else File.of(f) for name, f in (files or {}).items()}
        self.repositories[model_id] = Repository(files=made, **how)
        return self.repositories[model_id]

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


class _Handler(BaseHTTPRequestHandler):
    hub: FakeHub
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        path = unquote(urlsplit(self.path).path)
        with self.hub.lock:
            self.hub.seen.append((path, {k.lower(): v for k, v in self.headers.items()}))
        try:
            self._route(path)
        except (BrokenPipeError, ConnectionResetError):
            self.close_connection = True

    def _route(self, path: str) -> None:
        if found := re.fullmatch(r"/api/models/(.+?)(?:/revision/(.+))?", path):
            self._describe(found[1], found[2])
        elif found := re.fullmatch(r"(/cdn)?/([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            self._serve(found[2], found[4], is_cdn=bool(found[1]))
        else:
            self._refuse(404)

    def _describe(self, model_id: str, revision: str | None) -> None:
        repository = self.hub.repositories.get(model_id)
        if repository is None:
            self._refuse(401 if not self.headers.get("Authorization") else 404, "RepoNotFound")
            return
        time.sleep(repository.delay_s)
        if repository.status != 200:
            self._refuse(repository.status, repository.error_code, repository.error_message)
        elif revision and revision not in repository.revisions:
            self._refuse(404, "RevisionNotFound")
        else:
            siblings = [{"rfilename": name} for name in repository.files]
            described = {"id": model_id, "sha": COMMIT, "siblings": siblings, "tags": [], "downloads": 0}
            self._answer(200, repository.info or json.dumps(described).encode(), {"Content-Type": "application/json"})

    def _serve(self, model_id: str, name: str, *, is_cdn: bool) -> None:
        repository = self.hub.repositories[model_id]
        time.sleep(repository.file_delay_s)
        with self.hub.lock:
            self.hub.failures[name] += 1
            fails = self.hub.failures[name] <= repository.fails_first
        if fails or name in repository.file_status:
            self._refuse(503 if fails else repository.file_status[name])
        elif name not in repository.files:
            self._refuse(404, "EntryNotFound")
        elif repository.redirect and (repository.redirects_forever or not is_cdn):
            self._answer(302, b"", {"Location": f"{repository.redirect}/cdn{self.path.removeprefix('/cdn')}"})
        else:
            self._send(name, repository.files[name], repository.knows_ranges)

    def _send(self, name: str, file: File, knows_ranges: bool) -> None:
        start, stop, status = 0, file.n_bytes, 200
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if found and knows_ranges:
            start, stop, status = int(found[1]), min(int(found[2]) + 1, file.n_bytes), 206
            if start >= file.n_bytes:
                self._answer(416, b"", {})
                return
        self.send_response(status)
        self.send_header("Content-Length", str(stop - start))
        if status == 206:
            self.send_header("Content-Range", f"bytes {start}-{stop - 1}/{file.n_bytes}")
        self.end_headers()
        at = start
        while at < stop:
            piece = file.head[at : min(stop, at + len(_CHUNK))] or _CHUNK[: stop - at]
            self.wfile.write(piece)
            at += len(piece)
            with self.hub.lock:
                self.hub.sent_bytes[name] += len(piece)

    def _refuse(self, status: int, code: str = "", message: str = "") -> None:
        headers = {"X-Error-Code": code, "X-Error-Message": message}
        self._answer(status, b'{"error": "no"}', {k: v for k, v in headers.items() if v})

    def _answer(self, status: int, body: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        """A test needs no access log."""
