"""roundoff mcp, asked by a scripted client over real pipes."""

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from roundoff import demo
from roundoff.api.mcp import TOOLS, shortened


class Assistant:
    """A client: one request, one answer."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "roundoff", "mcp", str(folder), *options],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
        )  # fmt: skip
        self.number = 0

    def send(self, line: str) -> Any:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return json.loads(self.process.stdout.readline())

    def ask(self, method: str, **params: Any) -> Any:
        self.number += 1
        answer = self.send(json.dumps({"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}))
        assert answer["id"] == self.number
        return answer

    def call(self, tool: str, **arguments: Any) -> tuple[str, bool]:
        result = self.ask("tools/call", name=tool, arguments=arguments)["result"]
        return result["content"][0]["text"], result["isError"]

    def end(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(timeout=60)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    there = demo.model_path().parent
    for name in ("digits.onnx", "samples.npy"):
        shutil.copy(there / name, tmp_path / name)
    shutil.copytree(there / "board_dump", tmp_path / "board_dump")
    return tmp_path


@pytest.fixture
def assistant(folder: Path) -> Iterator[Assistant]:
    found = Assistant(folder)
    yield found
    found.end()
    assert found.process.stdout is not None
    found.process.stdout.close()


def test_a_session(assistant: Assistant, folder: Path) -> None:
    start = assistant.ask("initialize", protocolVersion="2025-03-26", capabilities={})["result"]
    assert (start["protocolVersion"], start["serverInfo"]["name"]) == ("2025-03-26", "roundoff")
    assert assistant.ask("initialize", protocolVersion="1999")["result"]["protocolVersion"] == "2025-06-18"
    tools = assistant.ask("tools/list")["result"]["tools"]
    assert [each["name"] for each in tools] == list(TOOLS)
    assert all(set(each["inputSchema"]["required"]) <= set(each["inputSchema"]["properties"]) for each in tools)
    before = sorted(path.name for path in folder.rglob("*"))
    text, failed = assistant.call("compare", reference="digits.onnx", candidate="board_dump", data="samples.npy")
    assert (failed, text.startswith("FAIL: 8 of 14 tensors pass")) == (False, True)
    assert "block3/relu" in text
    text, failed = assistant.call("diagnose", model="digits.onnx", target="generic-int8", data="samples.npy")
    assert (failed, text.startswith("HEALTHY")) == (False, True)
    text, failed = assistant.call("explain", name="sqnr")
    assert (failed, "dB" in text) == (False, True)
    assert sorted(path.name for path in folder.rglob("*")) == before
    assert assistant.end() == 0


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"model": "../../etc/passwd"}, "is not below"),
        ({"model": "/etc/passwd"}, "is not below"),
        ({"model": "a\0b"}, "path"),
        ({"model": "none.onnx", "target": "generic-int8"}, "does not exist"),
        ({"model": "digits.onnx", "evaluator": "x.py"}, "unknown or missing: evaluator"),
        ({}, "unknown or missing: model"),
        ({"model": 3}, "should be another kind"),
        ({"model": "digits.onnx", "samples": True}, "should be another kind"),
        (
            {"model": "digits.onnx", "target": "generic-int8", "data": "samples.npy", "output": "run"},
            "this server only reads",
        ),
    ],
)
def test_what_may_not_be_is_refused_with_a_fix(
    assistant: Assistant, arguments: dict[str, Any], says: str, folder: Path
) -> None:
    text, failed = assistant.call("diagnose", **arguments)
    assert failed
    assert says in text
    assert "\nfix: " in text
    assert not (folder / "run").exists()


def test_links_out_of_the_folder_are_refused(assistant: Assistant, folder: Path) -> None:
    (folder / "door.onnx").symlink_to(demo.model_path())
    text, failed = assistant.call("audit", subject="door.onnx")
    assert (failed, "is not below" in text) == (True, True)


def test_writing_is_allowed_when_told(folder: Path) -> None:
    assistant = Assistant(folder, "--write")
    _, failed = assistant.call(
        "diagnose", model="digits.onnx", target="generic-int8", data="samples.npy", output="run"
    )
    assert (failed, (folder / "run" / "run.json").is_file()) == (False, True)
    assert assistant.end() == 0
    assert assistant.process.stdout is not None
    assistant.process.stdout.close()


@pytest.mark.parametrize(
    ("line", "code"),
    [("{", -32700), ("[]", -32600), ('{"id":1,"method":"nothing"}', -32601),
     ('{"id":1,"method":"tools/call","params":{"name":"rm"}}', -32602)],
)  # fmt: skip
def test_what_is_no_request_is_answered_as_the_protocol_says(assistant: Assistant, line: str, code: int) -> None:
    # What asks for nothing gets no answer.
    assert assistant.process.stdin is not None
    assistant.process.stdin.write('{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
    assert assistant.send(line)["error"]["code"] == code


@pytest.mark.parametrize("letter", ["x", "\u91cf"])
def test_answers_are_short(letter: str) -> None:
    text = "\n".join(letter * 50 for _ in range(500))
    short = shortened(text)
    assert sum(1 / 3 if each.isascii() else 1.5 for each in short) < 2000
    lines = short.splitlines()
    assert lines[-1] == f"... {500 - len(lines) + 1} more lines"
    assert shortened("a\nb") == "a\nb"
