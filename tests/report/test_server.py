"""The server, asked over real connections: what it shows, and what it refuses."""

import http.client
import json
import os
import re
import shutil
import socket
import struct
import threading
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from roundoff.core.document import InputFile
from roundoff.core.progress import RunningJob, progress_path
from roundoff.errors import BadInput
from roundoff.pages.blocks import TableBlock
from roundoff.report.pages import write_run
from roundoff.report.server import RunFolder, make_server, run_figures, runs_page
from roundoff.studies.run_diff.study import diff_runs
from tests.report.documents import HOSTILE, empty_document, full_document


@dataclass
class Client:
    """Asks for addresses below the token."""

    root: Path
    host: str
    prefix: str

    def get(
        self, path: str, *, host: str | None = None, method: str = "GET", whole: bool = False
    ) -> tuple[int, str]:
        response, text = self.ask(path, host=host, method=method, whole=whole)
        return response.status, text

    def ask(
        self, path: str, *, host: str | None = None, method: str = "GET", whole: bool = False
    ) -> tuple[http.client.HTTPResponse, str]:
        connection = http.client.HTTPConnection(self.host, timeout=20)
        connection.putrequest(method, path if whole else self.prefix + path, skip_host=True)
        connection.putheader("Host", self.host if host is None else host)
        connection.endheaders()
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        return response, text


@pytest.fixture
def client(tmp_path: Path) -> Iterator[Client]:
    root = tmp_path / "results"
    write_run(full_document(), root / "first", force=False)
    write_run(replace(full_document(), layers=None), root / "deep/second <b>", force=False)
    server, address = make_server(root, differ=diff_runs)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    parts = urlsplit(address)
    yield Client(root, parts.netloc, parts.path)
    server.shutdown()
    server.server_close()
    thread.join()


def links(text: str, start: str) -> list[str]:
    return [each.partition('"')[0] for each in text.split('href="')[1:] if each.startswith(start)]


def test_runs_are_listed_opened_and_compared(client: Client) -> None:
    status, text = client.get("")
    assert status == 200
    assert "deep/second &lt;b&gt;" in text
    runs = links(text, "run/")
    assert len(runs) == 2
    for run in runs:
        status, report = client.get(run)
        assert status == 200
        assert "运行信息" in report
        assert f'href="{client.prefix}"' in report
    picks = re.findall(r'name="run" value="(\w+)"', text)
    assert [f"run/{each}/" for each in picks] == runs
    status, both = client.get(f"compare/?run={picks[0]}&run={picks[1]}")
    assert (status, "Side by side" in both) == (200, True)
    assert len(links(both, f"{client.prefix}run/")) == 2
    for few in ("", f"?run={picks[0]}", f"?run={picks[0]}&run=../x"):
        assert "go back and tick two of them" in client.get(f"compare/{few}")[1]


def test_two_runs_of_one_command_are_compared_node_by_node(client: Client) -> None:
    layers = empty_document(layers=full_document().layers, network=full_document().network)
    for name in ("a", "b"):
        write_run(layers, client.root / name, force=False)
    ids = {client.get(run)[1].partition("<title>")[2].partition("</title>")[0]: run.split("/")[1]
           for run in links(client.get("")[1], "run/")}  # fmt: skip
    status, text = client.get(f"compare/{ids['a']}/{ids['b']}/")
    assert status == 200
    assert "SAME" in text
    assert 'id="table-diff"' in text
    assert 'id="page-glossary"' in text
    assert f'href="{client.prefix}compare/{ids["b"]}/{ids["a"]}/"' in text
    # Runs that have nothing in common are still shown side by side, with the reason.
    write_run(empty_document(), client.root / "c", force=False)
    other = next(run.split("/")[1] for run in links(client.get("")[1], "run/") if run.split("/")[1] not in
                 ids.values())  # fmt: skip
    status, text = client.get(f"compare/{ids['a']}/{other}/")
    assert (status, "Node by node they are not compared" in text) == (200, True)


def test_nothing_is_answered_without_the_token_or_to_another_name(client: Client) -> None:
    assert client.get("/", whole=True)[0] == 404
    assert client.get("/wrong/", whole=True)[0] == 404
    assert client.get("*", whole=True)[0] == 404
    assert client.get(client.prefix.rstrip("/"), whole=True)[0] == 404
    for host in ("evil.example", f"evil.example:{client.host.partition(':')[2]}", ""):
        status, text = client.get("", host=host)
        assert (status, "first" in text) == (403, False)


@pytest.mark.parametrize(
    "path",
    [
        "../", "../../etc/passwd", "run/../../", "run/..%2f..%2fetc/", "run//etc/", "run/first/", "first/run.json",
        "run/first/run.json", "compare/a/b/", "run/", "compare//", "%2e%2e/", "run/\\..\\/",
    ],
)  # fmt: skip
def test_addresses_name_no_files(client: Client, path: str) -> None:
    assert client.get(path)[0] == 404


def test_links_out_of_the_folder_are_not_followed(client: Client, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    write_run(empty_document(), secret, force=False)
    (client.root / "door").symlink_to(secret)
    (client.root / "own").mkdir()
    (client.root / "own/run.json").symlink_to(secret / "run.json")
    (client.root / ".hidden").mkdir()
    os.link(client.root / "first/run.json", client.root / ".hidden/run.json")
    assert len(links(client.get("")[1], "run/")) == 2


def test_it_only_reads(client: Client) -> None:
    before = sorted(path.stat().st_mtime_ns for path in client.root.rglob("*"))
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        assert client.get("", method=method)[0] == 501
    response, text = client.ask("", method="HEAD")
    assert (response.status, text) == (200, "")
    assert response.headers["Referrer-Policy"] == "no-referrer"
    assert response.headers["Cache-Control"] == "no-store"
    assert sorted(path.stat().st_mtime_ns for path in client.root.rglob("*")) == before


def test_changed_and_broken_runs_are_noticed(client: Client) -> None:
    (client.root / "broken").mkdir()
    (client.root / "broken/run.json").write_text('{"schema": 99}')
    text = client.get("")[1]
    assert "has schema 99" in text
    broken = [run for run in links(text, "run/") if "has schema" in client.get(run)[1]]
    assert len(broken) == 1
    write_run(full_document(), client.root / "fixed", force=False)
    (client.root / "broken/run.json").write_text((client.root / "fixed/run.json").read_text())
    assert "has schema" not in client.get("")[1]


def test_a_running_command_is_shown_while_it_runs(client: Client) -> None:
    job = RunningJob("third", HOSTILE[:60], 3, 120, 7.5, os.getpid())
    path = progress_path(client.root / "third")
    path.write_text(json.dumps({name: getattr(job, name) for name in job.__slots__}))
    response, text = client.ask("")
    assert "3 of 120" in text
    assert "<img src=x" not in text
    assert response.headers["Refresh"] == "2"
    for left in ("{}", "[1", json.dumps({"process": 1}), "x" * 9000):
        path.write_text(left)
        response, text = client.ask("")
        # What was ticked would be gone.
        assert ("Running" in text, response.headers["Refresh"]) == (False, None)


def test_a_command_that_writes_deeper_is_shown_by_its_place(client: Client) -> None:
    job = RunningJob("fourth", "layers", 1, 9, 75.0, os.getpid())
    path = progress_path(client.root / "deep/fourth")
    path.write_text(json.dumps({name: getattr(job, name) for name in job.__slots__}))
    assert "Running: deep/fourth: layers, 1 of 9, for 1\u00a0min" in client.get("")[1]


def test_a_browser_that_leaves_early_is_no_fault(client: Client, capsys: pytest.CaptureFixture[str]) -> None:
    for _ in range(3):
        host, _, port = client.host.partition(":")
        with socket.create_connection((host, int(port)), timeout=20) as leaving:
            leaving.sendall(f"GET {client.prefix} HTTP/1.0\r\nHost: {client.host}\r\n\r\n".encode())
            # Closed at once, with a reset instead of a farewell.
            leaving.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    assert client.get("")[0] == 200
    assert capsys.readouterr().err == ""


def test_a_port_that_is_taken_is_said(client: Client) -> None:
    with pytest.raises(BadInput, match="cannot be used"):
        make_server(client.root, differ=diff_runs, port=int(client.host.rpartition(":")[2]))


def test_a_folder_whose_name_is_not_utf8_is_listed(client: Client) -> None:
    place = client.root / os.fsdecode("模型".encode("gbk"))
    try:
        place.mkdir()
    except OSError:
        pytest.skip("this disk takes UTF-8 names only")
    shutil.copy(client.root / "first" / "run.json", place)
    status, text = client.get("")
    assert status == 200
    runs = links(text, "run/")
    assert len(runs) == 3
    assert {client.get(run)[0] for run in runs} == {200}


def test_a_row_says_model_chip_and_what_the_worst_output_keeps(tmp_path: Path) -> None:
    from roundoff import compare, demo, diagnose

    folder = demo.model_path().parent
    samples = folder / "samples.npy"
    diagnosed = diagnose(demo.model_path(), target="generic-int8", data=samples)
    cells = run_figures(diagnosed.document)
    assert (cells["model"], cells["command"], cells["chip"]) == ("digits.onnx", "diagnose", "generic-int8")
    assert cells["output_db"] == diagnosed.result.measures[0].before
    compared = compare(demo.model_path(), folder / "board_dump", data=samples)
    logits = next(row for row in compared.result.rows if row.reference == "logits")
    assert run_figures(compared.document)["output_db"] == logits.score.values["sqnr_db"]


def test_several_runs_of_a_model_are_a_trend(tmp_path: Path) -> None:
    layers = empty_document(layers=full_document().layers, network=full_document().network)
    named = replace(layers, inputs=(InputFile("model", "net.onnx", 1, "0", "content"),))
    for name in ("a", "b"):
        write_run(named, tmp_path / name, force=False)
    folder = RunFolder(tmp_path)
    page = runs_page(folder, tuple(folder.runs().values()), ())
    kinds = [type(block).__name__ for block in page.blocks]
    assert kinds == ["Chart", "TableBlock", "TableBlock"]
    trend = page.blocks[1]
    assert isinstance(trend, TableBlock)
    assert [row[0] for row in trend.rows] == [1, 2]


def test_runs_are_in_the_order_in_which_they_ended_not_that_of_their_files(tmp_path: Path) -> None:
    layers = empty_document(layers=full_document().layers, network=full_document().network)
    for name, ended in (("older", "2026-01-02T03:04:05+00:00"), ("newer", "2026-02-03T04:05:06+00:00")):
        ran = replace(layers, environment=replace(layers.environment, finished=ended))
        write_run(ran, tmp_path / name, force=False)
    # A copy of the older run is the newest file.
    os.utime(tmp_path / "newer" / "run.json", (1, 1))
    folder = RunFolder(tmp_path)
    page = runs_page(folder, tuple(folder.runs().values()), ())
    table = next(each for each in page.blocks if isinstance(each, TableBlock) and each.id == "runs")
    ids = [column.id for column in table.columns]
    told = [(row[ids.index("run")], row[ids.index("written")]) for row in table.rows]
    assert told == [("newer", "2026-02-03 04:05"), ("older", "2026-01-02 03:04")]
