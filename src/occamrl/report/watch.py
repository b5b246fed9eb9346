"""The live view: the page of a folder, served to this computer only, that follows the cells as they finish.

Two addresses exist, ``/`` and ``/data.json``; both are read-only, and nothing a request says is used to find a file.
A page on another site could make a browser ask this server (DNS rebinding); the Host header gives it away.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
import sys
import threading
import time
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from occamrl.errors import OccamRLError, ParameterError
from occamrl.experiments.records import Records, load, status
from occamrl.experiments.tables import SCHEMAS
from occamrl.report import page
from occamrl.report.data import build, standing

REFRESH = 2.0  # seconds between two looks of the page


class Source:
    """The data of a folder: progress as often as it is asked for, everything else when a cell has finished.

    Reading and computing may take a quarter of the time, however many cells there are; in between, the last is shown.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._seen: list[str] | None = None  # cells
        self._not_before = -math.inf
        self._tag = ""
        tables = [schema.empty_table() for schema in SCHEMAS.values()]
        name = folder.resolve().name
        self._model = build(Records(folder=folder, name=name, spec={}, curves=tables[0], phases=tables[1]))

    def current(self) -> tuple[str, dict[str, Any]]:
        """Return a tag that changes with the data, and the data."""
        with self._lock:
            began = time.monotonic()
            if began >= self._not_before:
                self._renew()
                text = page.as_json(self._model)
                self._tag = '"' + hashlib.sha256(text.encode()).hexdigest()[:32] + '"'
                self._not_before = time.monotonic() + 3.0 * (time.monotonic() - began)
            return self._tag, self._model

    def _renew(self) -> None:
        try:
            now = status(self._folder)
            seen = [manifest["cell"] for manifest in now.cells]
            if seen == self._seen and not now.damaged:
                self._model = {**self._model, "status": standing(now), "trouble": None}
            else:
                self._model = build(load(self._folder))
                self._seen = seen
        except (OccamRLError, OSError, ValueError, TypeError, LookupError, ArithmeticError) as error:
            # A folder that cannot be read now may be readable in a moment: show what was there, and say why.
            self._model = {**self._model, "trouble": f"The records cannot be read: {error}"}


class _Handler(BaseHTTPRequestHandler):
    server: Server
    timeout = 30  # seconds for a request to arrive
    server_version = "occamrl"
    sys_version = ""
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        if self.headers.get_all("Host", []) not in self.server.hosts:
            self._answer(HTTPStatus.MISDIRECTED_REQUEST, "Only for this computer.\n")
        elif self.path == "/":
            tag, model = self.server.source.current()
            self._answer(HTTPStatus.OK, page.render(model, refresh=REFRESH, tag=tag), "text/html; charset=utf-8")
        elif self.path == "/data.json":
            tag, model = self.server.source.current()
            if self.headers.get("If-None-Match") == tag:
                self._answer(HTTPStatus.NOT_MODIFIED, "", tag=tag)
            else:
                self._answer(HTTPStatus.OK, page.as_json(model), "application/json", tag)
        else:
            self._answer(HTTPStatus.NOT_FOUND, "Nothing here.\n")

    def _refuse(self) -> None:
        self.close_connection = True  # a body may follow, which is not read
        self._answer(HTTPStatus.METHOD_NOT_ALLOWED, "GET only.\n")

    do_HEAD = do_POST = do_PUT = do_DELETE = _refuse  # noqa: N815  # http.server looks for methods of these names
    do_PATCH = do_OPTIONS = do_TRACE = do_CONNECT = _refuse  # noqa: N815  # likewise

    def _answer(self, status: HTTPStatus, text: str, kind: str = "text/plain; charset=utf-8", tag: str = "") -> None:
        body = text.encode()
        self.send_response(status)
        headers = {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "Content-Security-Policy": page.policy(live=True) + "; frame-ancestors 'none'",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Cross-Origin-Opener-Policy": "same-origin",
            "Referrer-Policy": "no-referrer",
            "X-Content-Type-Options": "nosniff",
            "X-Frame-Options": "DENY",
            "Cache-Control": "no-store",
        }
        if tag:
            headers["ETag"] = tag
        if status == HTTPStatus.METHOD_NOT_ALLOWED:
            headers |= {"Allow": "GET", "Connection": "close"}
        if status == HTTPStatus.NOT_MODIFIED:
            del headers["Content-Type"], headers["Content-Length"]
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing: the terminal belongs to the run."""


class Server(ThreadingHTTPServer):
    """Serves one folder on the loopback address."""

    daemon_threads = True

    def __init__(self, source: Source, port: int = 0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.source = source
        names = [f"127.0.0.1:{self.server_port}", f"localhost:{self.server_port}"]
        self.hosts = [[name] for name in names]  # exactly one Host header, and one of these

    @property
    def address(self) -> str:
        """Where the page is."""
        return f"http://127.0.0.1:{self.server_port}/"

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Let a browser go away in the middle of an answer; anything else is shown."""
        if not isinstance(sys.exception(), (ConnectionError, TimeoutError)):
            super().handle_error(request, client_address)


def serve(folder: Path, port: int = 0, say: Callable[[str], None] = print) -> None:
    """Serve the live page of an experiment's folder until Ctrl-C; port 0: any that is free.

    Cells may be running in the folder, here or elsewhere. ``say`` is given the address.
    """
    status(folder)  # refuses a folder that holds no experiment, before there is a page
    try:
        made = Server(Source(folder), port)
    except OSError as error:
        raise ParameterError("port", got=f"{port} ({error.strerror})", expected="one that is free, or 0") from error
    with made as server:
        say(f"Watching {folder} at {server.address} (Ctrl-C stops)")
        with contextlib.suppress(KeyboardInterrupt):
            server.serve_forever()
