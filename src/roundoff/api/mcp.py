"""Tools for assistants over stdio: the Model Context Protocol, as far as tools need it (JSON, a line each).

Only what lies below one folder is read, nothing is written unless that was allowed, no Python file of anybody is
run (there is no evaluator), and an answer is short enough to be read with others.
"""

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from roundoff import __version__
from roundoff.api.call import public
from roundoff.api.inputs import PathLike, as_path
from roundoff.core.untrusted import parse_json
from roundoff.errors import BadInput, RoundoffError
from roundoff.messages.message import english, shown

_PROTOCOLS = ("2025-06-18", "2025-03-26", "2024-11-05")
_MOST_TOKENS = 1900
# Names and numbers take about a token for every third letter, Chinese more than one for each.
_ASCII_TOKENS, _OTHER_TOKENS = 1 / 3, 1.5
_LONGEST_LINE = 1 << 20
_PARSE, _REQUEST, _METHOD, _PARAMS = -32700, -32600, -32601, -32602


@dataclass(frozen=True, slots=True)
class AssistantTool:
    """One tool.

    Attributes:
        about: What it does, for the assistant that chooses.
        arguments: Names of its arguments with what each is; those that are paths end in ``(path)``.
        required: Those that must be given.
        call: Does it; given arguments, and whether files may be written.
    """

    about: str
    arguments: Mapping[str, str]
    required: tuple[str, ...]
    call: Callable[[dict[str, Any], bool], str]


def _compare(said: dict[str, Any], _: bool) -> str:
    from roundoff.api.comparison import compare

    return str(compare(said.pop("reference"), said.pop("candidate"), **said))


def _diagnose(said: dict[str, Any], write: bool) -> str:
    from roundoff.api.diagnosis import diagnose

    output = said.pop("output", None)
    if output is not None:
        _check_writing(write, "output")
    outcome = diagnose(said.pop("model", None), **said)
    if output is not None:
        outcome.save(output)
    return str(outcome)


def _audit(said: dict[str, Any], _: bool) -> str:
    from roundoff.api.quantization import audit

    return str(audit(said.pop("subject"), **said))


def _explain(said: dict[str, Any], _: bool) -> str:
    from roundoff.api.runs import explain

    return str(explain(said["name"], said.get("run")))


def _export_settings(said: dict[str, Any], write: bool) -> str:
    from roundoff.api.quantization import export_settings

    output = said.pop("output", None)
    if output is not None:
        _check_writing(write, "output")
    outcome = export_settings(said.pop("source"), **said)
    if output is not None:
        return "\n".join(str(path) for path in outcome.save(output))
    return str(outcome)


def _check_writing(write: bool, name: str) -> None:
    if not write:
        raise BadInput(
            english("{name} would write files, and this server only reads.", name=name),
            fix=english("leave it out, or start it with 'roundoff mcp --write'"),
        )


_DATA = {"data": "samples: .npy, folder, list (path)", "samples": "read at most so many"}
_QUANTIZED = {"quantized": "the quantized model or run folder (path)", "target": "or a chip to quantize for"}
TOOLS: Mapping[str, AssistantTool] = {
    "compare": AssistantTool(
        "Which tensors of a device's dump differ from a float model or golden dump, how, and where it starts.",
        {"reference": "model or dump (path)", "candidate": "dump (path)", **_DATA, "profile": "named thresholds"},
        ("reference", "candidate"),
        _compare,
    ),
    "diagnose": AssistantTool(
        "Why a quantized model (quantized or target) or a device (dumps) loses accuracy: nodes, causes, proof, "
        "what helps.",
        {
            "model": "the float model (path)", **_QUANTIZED, **_DATA, "labels": "right classes (path)",
            "dumps": "tensors that a device wrote (path)", "output": "folder to write to, if allowed (path)",
        },
        ("model",),
        _diagnose,
    ),
    "audit": AssistantTool(
        "Which precision every node of a quantized model really has.",
        {"subject": "quantized model or run folder (path)", "float_model": "float model (path)"},
        ("subject",),
        _audit,
    ),
    "explain": AssistantTool(
        "What a node, finding, metric, verdict or word means; with run, in the numbers of that run.",
        {"name": "what to explain", "run": "run folder or run.json (path)"},
        ("name",),
        _explain,
    ),
    "export_settings": AssistantTool(
        "A quantization as settings of onnxruntime, Pulsar2, Horizon, AMCT, RKNN and others.",
        {
            "source": "run folder or quantized model (path)", "dialect": "the tool, or all",
            "model": "the float model (path)", "output": "folder to write to, if allowed (path)",
        },
        ("source",),
        _export_settings,
    ),
}  # fmt: skip


@public
def mcp(
    folder: PathLike = ".", *, write: bool = False, reader: IO[str] | None = None, writer: IO[str] | None = None
) -> None:
    """Answer an assistant that asks over standard input, until it ends.

    Args:
        folder: Only files below it are read.
        write: Whether results may be written below it.
        reader: Where requests come from; standard input when None.
        writer: Where answers go; standard output when None.

    Raises:
        BadInput: It is no folder.
    """
    root = as_path(folder, option="The folder").resolve()
    if not root.is_dir():
        raise BadInput(
            english("{folder} is not a folder.", folder=root), fix=english("give the folder that your runs are in")
        )
    read, said = reader or sys.stdin, writer or sys.stdout
    # Whatever prints must not come between two answers.
    before, sys.stdout = sys.stdout, sys.stderr
    try:
        while line := read.readline(_LONGEST_LINE):
            answer = _answer(line, root, write) if line.strip() else None
            if answer is not None:
                said.write(json.dumps(answer, ensure_ascii=True) + "\n")
                said.flush()
    except (BrokenPipeError, KeyboardInterrupt):
        return
    finally:
        sys.stdout = before


def _answer(line: str, root: Path, write: bool) -> dict[str, Any] | None:
    """The answer to a request; None for what asks for none."""
    try:
        asked = parse_json(line, "a request")
    except BadInput:
        return _refused(None, _PARSE, "not JSON")
    if not isinstance(asked, dict) or not isinstance(asked.get("method"), str):
        return _refused(None, _REQUEST, "no request")
    number, params = asked.get("id"), asked.get("params")
    if number is None:
        return None
    try:
        result = _result(asked["method"], params if isinstance(params, dict) else {}, root, write)
    except _Unknown as error:
        return _refused(number, error.code, str(error))
    return {"jsonrpc": "2.0", "id": number, "result": result}


class _Unknown(Exception):
    """A method or a tool that there is not, with its code."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code


def _result(method: str, params: dict[str, Any], root: Path, write: bool) -> dict[str, Any]:
    match method:
        case "initialize":
            version = params.get("protocolVersion")
            return {
                "protocolVersion": version if version in _PROTOCOLS else _PROTOCOLS[0],
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "roundoff", "version": __version__},
            }
        case "ping":
            return {}
        case "tools/list":
            return {"tools": [_described(name, tool) for name, tool in TOOLS.items()]}
        case "tools/call":
            name, arguments = params.get("name"), params.get("arguments", {})
            if not isinstance(name, str) or name not in TOOLS or not isinstance(arguments, dict):
                raise _Unknown(_PARAMS, f"there is no tool {name!r}")
            return _called(TOOLS[name], arguments, root, write)
    raise _Unknown(_METHOD, f"there is no method {method!r}")


def _refused(number: object, code: int, why: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": why}}


def _described(name: str, tool: AssistantTool) -> dict[str, Any]:
    kinds = {key: "integer" if key == "samples" else "string" for key in tool.arguments}
    properties = {key: {"type": kinds[key], "description": what} for key, what in tool.arguments.items()}
    schema = {"type": "object", "properties": properties, "required": list(tool.required)}
    return {"name": name, "description": tool.about, "inputSchema": {**schema, "additionalProperties": False}}


def _called(tool: AssistantTool, arguments: dict[str, Any], root: Path, write: bool) -> dict[str, Any]:
    """What a tool says; what a user can cause is said as an error with its fix, never a traceback."""
    try:
        text, failed = tool.call(_checked(tool, arguments, root), write), False
    except RoundoffError as error:
        text, failed = f"error: {shown(error.what)}\nfix: {shown(error.fix)}", True
    return {"content": [{"type": "text", "text": shortened(text)}], "isError": failed}


def _checked(tool: AssistantTool, arguments: dict[str, Any], root: Path) -> dict[str, Any]:
    unknown = [name for name in arguments if name not in tool.arguments]
    missing = [name for name in tool.required if name not in arguments]
    if unknown or missing:
        raise BadInput(
            english("Arguments are unknown or missing: {names}.", names=", ".join([*unknown, *missing])),
            fix=english("give {names}", names=", ".join(tool.required)),
        )
    found = dict(arguments)
    for name, value in arguments.items():
        wanted: type = int if name == "samples" else str
        if not isinstance(value, wanted) or isinstance(value, bool):
            what = english("{name} is {value!r}, and should be another kind.", name=name, value=value)
            raise BadInput(what, fix=english("see the tool's description"))
        if tool.arguments[name].endswith("(path)") or (name == "target" and str(value).endswith(".toml")):
            found[name] = str(_inside(str(value), root))
    return found


def _inside(text: str, root: Path) -> Path:
    """A path below the folder.

    Raises:
        BadInput: It is elsewhere, also by a link.
    """
    try:
        path = (root / text).resolve()
    except (OSError, ValueError, RuntimeError) as error:
        raise BadInput(english("{path} is no path.", path=repr(text)), fix=english("check the path")) from error
    if not path.is_relative_to(root):
        raise BadInput(
            english("{path} is not below {root}.", path=text, root=root),
            fix=english("give a path inside, or start 'roundoff mcp' with that folder"),
        )
    return path


def shortened(text: str) -> str:
    """A text within the budget of an answer, cut between lines, and saying so."""
    kept: list[str] = []
    left = float(_MOST_TOKENS)
    lines = text.splitlines()
    for line in lines:
        left -= 1 + sum(_ASCII_TOKENS if letter.isascii() else _OTHER_TOKENS for letter in line)
        if left < 0:
            return "\n".join([*kept, f"... {len(lines) - len(kept)} more lines"])
        kept.append(line)
    return "\n".join(kept)
