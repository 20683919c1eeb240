"""The folder of a reproducer: models, inputs, results, a script that shows the fault, and a text for readers."""

import io
import json
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from roundoff.core.files import write_bytes, write_text
from roundoff.core.findings import Finding
from roundoff.core.tensors import Array
from roundoff.core.wording import counted
from roundoff.diagnosis.reproducer.case import Reproducer
from roundoff.diagnosis.reproducer.script import RUN_SCRIPT
from roundoff.graph.saving import save_model

__all__ = ["CASE_NAME", "Verified", "verify", "write_reproducer"]

CASE_NAME = "case.json"
"""By this file the folder of a reproducer is known."""

_SHOWN, _GONE = 1, 0
_MOST_SECONDS = 300


def write_reproducer(folder: Path, found: Reproducer, finding: Finding) -> tuple[str, ...]:
    """Write all files of a reproducer; gives their names.

    Args:
        folder: Where they go.
        found: The reproducer.
        finding: What it shows.
    """
    save_model(found.float_model, folder / "float.onnx")
    names = ["float.onnx"]
    if found.quantized_model is not None:
        save_model(found.quantized_model, folder / "quantized.onnx")
        names.append("quantized.onnx")
    inputs: dict[str, Array] = {}
    expected: dict[str, Array] = {}
    observed: dict[str, Array] = {}
    samples = []
    for number, sample in enumerate(found.samples):
        keys = {name: f"s{number}_in{at}" for at, name in enumerate(sample.inputs)}
        results = {name: f"s{number}_out{at}" for at, name in enumerate(sample.expected)}
        inputs |= {keys[name]: array for name, array in sample.inputs.items()}
        expected |= {results[name]: array for name, array in sample.expected.items()}
        observed |= {results[name]: sample.observed[name] for name in sample.expected}
        samples.append({"name": sample.name, "inputs": keys, "outputs": results})
    for name, arrays in (("inputs.npz", inputs), ("expected.npz", expected), ("observed.npz", observed)):
        write_bytes(folder / name, _archive(arrays))
        names.append(name)
    case = {
        "cause": finding.cause,
        "nodes": dict(found.nodes),
        "tensor": found.spot.tensor,
        "axis": found.spot.axis,
        "index": found.spot.index,
        "sqnr_db": found.faulty_db,
        "without_fault_db": found.mended_db,
        "threshold_db": found.threshold_db,
        "dump": found.stored,
        "reference": "float.onnx" if found.quantized_model is None else "quantized.onnx",
        "samples": samples,
    }
    write_text(folder / CASE_NAME, json.dumps(case, indent=1, ensure_ascii=False) + "\n")
    write_text(folder / "run.py", RUN_SCRIPT)
    write_text(folder / "README.txt", _readme(found, finding))
    return (*names, CASE_NAME, "run.py", "README.txt")


def _archive(arrays: Mapping[str, Array]) -> bytes:
    buffer = io.BytesIO()
    np.savez_compressed(buffer, **dict(arrays))  # type: ignore[arg-type]
    return buffer.getvalue()


def _readme(found: Reproducer, finding: Finding) -> str:
    """What this is, for whoever receives it."""
    nodes = ", ".join(f"{name} ({kind})" for name, kind in found.nodes)
    observed = found.observer or (
        "what the device wrote"
        if found.stored
        else "what quantized.onnx gives: the same nodes with quantize-dequantize pairs"
    )
    lines = [
        f"One fault: {finding.cause}",
        "",
        f"  nodes     {nodes}",
        f"  where     {found.spot.text}",
        f"  SQNR      {found.faulty_db:.2f} dB; {found.mended_db:.2f} dB {found.mending}",
        f"  fed with  {found.fed_with}, {counted(len(found.samples), 'sample')}",
        "",
        "python run.py shows it, with numpy and onnxruntime alone: exit code 1 while",
        "the fault is there, 0 when it is gone. To judge other results, store them under",
        "the keys of observed.npz and run: python run.py --observed FILE.npz",
        "",
        "  float.onnx      the nodes in float",
        *([] if found.quantized_model is None else ["  quantized.onnx  the same with their quantizers"]),
        "  inputs.npz      what they are fed; case.json says which key is which tensor",
        "  expected.npz    what they should give",
        f"  observed.npz    {observed}",
    ]
    return "\n".join(lines) + "\n"


@dataclass(frozen=True, slots=True)
class Verified:
    """What the script of a reproducer did when it was run.

    Attributes:
        shows: Whether it ended with exit code 1 on what is observed.
        passes: Whether it ended with exit code 0 on what is expected; True where that cannot be tried.
        text: What it printed last, or why it failed.
    """

    shows: bool
    passes: bool
    text: str


def verify(folder: Path) -> Verified:
    """Run the script of a reproducer as its receiver would, on what is observed and on what is expected."""
    shown = _run(folder)
    right = _run(folder, "--observed", "expected.npz")
    printed = (shown.stdout.strip() or shown.stderr.strip()).splitlines()
    return Verified(
        shown.returncode == _SHOWN and "FAULT" in shown.stdout, right.returncode == _GONE, " ".join(printed[-2:-1])
    )


def _run(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-I", "run.py", *words]
    return subprocess.run(  # noqa: S603 - our own script
        command, cwd=folder, capture_output=True, text=True, check=False, timeout=_MOST_SECONDS
    )
