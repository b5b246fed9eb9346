import http.client
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from occamrl.errors import ParameterError
from occamrl.experiments.records import Records
from occamrl.report.watch import Server, Source, serve
from tests.report.synthetic import KINDS, records


class Folder:
    """A folder whose records the test decides on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.seeds = 1
        self.broken = False
        self.loads = 0
        self.running: dict[str, dict[str, float]] = {}

    def load(self, folder: Path) -> Records:
        self.loads += 1
        return self.status(folder)

    def status(self, folder: Path) -> Records:
        assert folder == self.path
        if self.broken:
            raise ParameterError("experiment.json", got="damage", expected="JSON")
        return records(problems=["p"], kinds=KINDS[:2], seeds=self.seeds, running=self.running, missing=["m"])


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    made = Folder(tmp_path)
    monkeypatch.setattr("occamrl.report.watch.load", made.load)
    monkeypatch.setattr("occamrl.report.watch.status", made.status)
    return made


@pytest.fixture
def server(folder: Folder) -> Iterator[Server]:
    with Server(Source(folder.path)) as found:
        thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield found
        found.shutdown()
        thread.join()


def ask(
    server: Server, path: str = "/", method: str = "GET", host: str | None = None, **headers: str
) -> tuple[http.client.HTTPResponse, bytes]:
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=30)
    try:
        connection.putrequest(method, path, skip_host=True)
        if host != "":
            connection.putheader("Host", host or f"127.0.0.1:{server.server_port}")
        for name, value in headers.items():
            connection.putheader(name.replace("_", "-"), value)
        connection.endheaders()
        answer = connection.getresponse()
        return answer, answer.read()
    finally:
        connection.close()


def test_the_page_and_its_data_are_served_with_a_policy(server: Server) -> None:
    answer, body = ask(server)
    assert answer.status == 200
    assert b"data-live=" in body
    policy = answer.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'")
    assert "connect-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    answer, body = ask(server, "/data.json")
    assert json.loads(body)["status"]["done"] == 2
    assert server.server_address[0] == "127.0.0.1"  # only this computer is listened to


def test_other_hosts_methods_and_paths_are_refused(server: Server, folder: Folder) -> None:
    for host in ("", "example.invalid", "127.0.0.1", "localhost:1", "127.0.0.1.example.invalid"):
        answer, body = ask(server, host=host)
        assert answer.status == 421
        assert b"data-live" not in body
    assert ask(server, host=f"localhost:{server.server_port}")[0].status == 200
    for method in ("POST", "PUT", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE"):
        answer, _ = ask(server, method=method)
        assert (answer.status, answer.headers["Allow"]) == (405, "GET")
    (folder.path / "secret").write_text("secret")
    for path in ("/../secret", "/secret", "//secret", "/data.json/..", "/%2e%2e/secret", "/?x", "secret"):
        answer, body = ask(server, path)
        assert answer.status == 404
        assert b"secret" not in body


def _at_once(server: Server) -> None:
    server.source._not_before = float("-inf")  # as if time had passed


def test_data_is_sent_again_only_when_it_has_changed(server: Server, folder: Folder) -> None:
    ask(server, "/data.json")
    _at_once(server)
    tag = ask(server, "/data.json")[0].headers["ETag"]
    _at_once(server)
    assert ask(server, "/data.json", If_None_Match=tag)[0].status == 304
    assert folder.loads == 1  # an unchanged folder is not read again
    folder.seeds = 3
    _at_once(server)
    answer, body = ask(server, "/data.json", If_None_Match=tag)
    assert answer.status == 200
    assert json.loads(body)["status"]["done"] == 6


def test_progress_is_followed_without_reading_the_records_again(server: Server, folder: Folder) -> None:
    ask(server, "/data.json")
    folder.running = {"00ff": {"episodes": 10, "total": 100, "regret": 1.5, "rate": 7.0, "time": 0.0}}
    _at_once(server)
    told = json.loads(ask(server, "/data.json")[1])["status"]
    assert (told["done"], told["running"], told["missing"], told["total"]) == (2, 1, 1, 4)
    assert told["progress"] == [{"cell": "00ff", "episodes": 10, "total": 100, "regret": 1.5, "rate": 7}]
    assert folder.loads == 1


def test_a_changing_folder_is_not_read_all_the_time(server: Server, folder: Folder) -> None:
    _at_once(server)
    ask(server, "/data.json")
    server.source._not_before = float("inf")
    ask(server, "/data.json")
    assert folder.loads == 1


def test_records_that_cannot_be_read_leave_the_last_ones_and_a_reason(server: Server, folder: Folder) -> None:
    def data() -> Any:
        _at_once(server)
        return json.loads(ask(server, "/data.json")[1])

    assert not data().get("trouble")
    folder.broken = True
    told = data()
    assert told["status"]["done"] == 2
    assert "experiment.json" in told["trouble"]
    folder.broken = False
    assert not data().get("trouble")


def test_a_folder_that_was_never_readable_shows_an_empty_page(folder: Folder) -> None:
    folder.broken = True
    _, model = Source(folder.path).current()
    assert model["problems"] == []
    assert "experiment.json" in model["trouble"]


def test_a_port_that_is_taken_and_a_folder_that_is_none(server: Server, folder: Folder) -> None:
    with pytest.raises(ParameterError, match="port"):
        serve(folder.path, server.server_port)
    folder.broken = True
    with pytest.raises(ParameterError, match="JSON"):
        serve(folder.path)
