"""The smallest case that shows a fault by itself: cut out of the network of a run, written, and verified."""

import io
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from roundoff.case.archive import SCRIPT, json_bytes
from roundoff.case.minimal import (
    MOST_SAMPLES,
    Reproducer,
    ReproducerSample,
    is_accumulator,
    is_of_file,
    reproduce_accumulator,
    reproduce_device,
    reproduce_file,
    reproduce_quantized,
)
from roundoff.case.sources import EarlierRun, findings_of, number_of, open_run
from roundoff.core.files import check_output_directory, output_directory, write_bytes, write_text
from roundoff.core.progress import SILENT, Progress
from roundoff.core.tensors import Array
from roundoff.diagnosis.devices.study import open_replay
from roundoff.diagnosis.investigation import DiagnoseSettings
from roundoff.diagnosis.result import Finding
from roundoff.diagnosis.subject import open_case
from roundoff.errors import BadInput
from roundoff.graph.anonymous import anonymized
from roundoff.graph.load import load_model
from roundoff.graph.save import save_model
from roundoff.graph.shapes import values
from roundoff.messages.message import english
from roundoff.messages.numbers import counted
from roundoff.run.budget import RunBudget
from roundoff.run.capture import complete_values, read_feed

CASE_NAME = "case.json"
"""By this file the folder of a reproducer is known."""

_SUPPORTED = ("diagnose", "layers", "compare")
_SHOWN, _GONE = 1, 0
_MOST_SECONDS = 300


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


@dataclass(frozen=True, slots=True, eq=False)
class Reproduction:
    """A reproducer that was written.

    Attributes:
        reproducer: What was cut out, under the names it has in the model.
        finding: What it shows.
        verified: What its script did.
        folder: Where it is.
        files: Its files.
    """

    reproducer: Reproducer
    finding: Finding
    verified: Verified
    folder: Path
    files: tuple[str, ...]

    @property
    def good(self) -> bool:
        """Whether its script fails on what is observed, and passes on what is expected."""
        return self.verified.shows and self.verified.passes


def reproduce(  # noqa: PLR0913 - the options of the command
    run: Path,
    folder: Path,
    *,
    finding: int = 1,
    keep_samples: int = MOST_SAMPLES,
    anonymous: bool = False,
    force: bool = False,
    limits: RunBudget,
    progress: Progress = SILENT,
) -> Reproduction:
    """Cut the smallest case that shows a fault out of the network of a run, write it, and run its script.

    Args:
        run: The folder that diagnose, layers or compare wrote, or its run.json.
        folder: The folder to be written.
        finding: Which fault, counted from 1.
        keep_samples: Samples that come along.
        anonymous: Replace the names of nodes and tensors by numbers.
        force: Replace an earlier reproducer.
        limits: Threads and memory.
        progress: Told of runs.

    Raises:
        NotLocal: No part of the network shows the fault by itself.
        BadInput: The run cannot be used, or the folder would replace something.
        ModelFailed: A model cannot be run.
    """
    number = number_of(finding, what="--finding", least=1)
    most_samples = number_of(keep_samples, what="--keep-samples", least=1)
    check_output_directory(folder, marker=CASE_NAME, force=force)
    earlier = open_run(run, _SUPPORTED, what="reproducer", limits=limits, progress=progress)
    chosen = _chosen(earlier, number)
    device = earlier.document.command[1] == "compare" or earlier.given.dumps is not None
    cut = _of_device if device else _of_quantized
    found = cut(earlier, chosen, most_samples=most_samples, limits=limits, progress=progress)
    with output_directory(folder, marker=CASE_NAME, force=force) as staged:
        files = write_reproducer(staged, without_names(found) if anonymous else found, chosen)
        verified = verify(staged)
    return Reproduction(found, chosen, verified, folder, files)


def _chosen(run: EarlierRun, number: int) -> Finding:
    """What is to be shown."""
    found = tuple(findings_of(run.document))
    if not found:
        raise BadInput(
            english("The run found no fault, so that there is nothing to show."),
            fix=english("give a run that found one"),
        )
    if number > len(found):
        what = english("The run has no finding {number}; it has {count}.", number=number, count=len(found))
        raise BadInput(what, fix=english("give --finding a number from 1 to {count}", count=len(found)))
    return found[number - 1]


def _of_quantized(
    run: EarlierRun, finding: Finding, *, most_samples: int, limits: RunBudget, progress: Progress
) -> Reproducer:
    opened = run.model()
    case = open_case(
        opened.quantized,
        opened.samples,
        arithmetic=opened.arithmetic,
        threads=limits.threads,
        max_memory=limits.max_memory,
        progress=progress,
    )
    if is_accumulator(finding):
        return reproduce_accumulator(case, finding, most_samples=most_samples)
    file = run.given.quantized
    given = load_model(file) if file is not None and file.is_file() else None
    if given is not None and is_of_file(case, given, finding):
        return reproduce_file(case, given, finding, most_samples=most_samples)
    return reproduce_quantized(case, finding, most_samples=most_samples)


def _of_device(
    run: EarlierRun, finding: Finding, *, most_samples: int, limits: RunBudget, progress: Progress
) -> Reproducer:
    opened, dumps, names = run.device()
    model = opened.quantized.float_model
    feed = read_feed(model, opened.samples, 0)
    shapes = values(model, {name: array.shape for name, array in feed.items()})
    everything = complete_values(model, shapes, feed, threads=limits.threads)
    settings = DiagnoseSettings(arithmetic=opened.arithmetic, threads=limits.threads, progress=progress)
    with open_replay(opened.quantized, opened.samples, dumps, settings=settings, names=names) as replay:
        return reproduce_device(replay, finding, values=everything, most_samples=most_samples)


def without_names(found: Reproducer) -> Reproducer:
    """The same reproducer with other names.

    Raises:
        BadInput: Its operations are someone's own, and their names would tell.
    """
    quantized = None if found.quantized_model is None else anonymized(found.quantized_model)
    plain = anonymized(found.float_model, like=quantized)
    return replace(
        found,
        nodes=tuple((plain.nodes[name], kind) for name, kind in found.nodes),
        float_model=plain.model,
        quantized_model=None if quantized is None else quantized.model,
        samples=tuple(
            ReproducerSample(
                f"sample {number}",
                _keyed(sample.inputs, plain.tensors),
                _keyed(sample.expected, plain.tensors),
                _keyed(sample.observed, plain.tensors),
            )
            for number, sample in enumerate(found.samples)
        ),
        spot=replace(found.spot, tensor=plain.tensors[found.spot.tensor]),
    )


def _keyed(arrays: Mapping[str, Array], names: Mapping[str, str]) -> dict[str, Array]:
    return {names[name]: array for name, array in arrays.items()}


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
    write_bytes(folder / CASE_NAME, json_bytes(case))
    write_text(folder / "run.py", SCRIPT)
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
