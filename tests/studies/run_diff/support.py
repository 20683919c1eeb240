"""Documents of made-up layer runs, with scores of every sample."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from roundoff.core.document import SCHEMA, Environment, InputFile, RunDocument
from roundoff.core.tensors import Array
from roundoff.measure.inference import keep_samples
from roundoff.messages.message import verbatim
from roundoff.studies.layers.result import LayerReport, LayerRow, LayerScore, LayerVerdict
from roundoff.studies.run_diff.result import RunDiff
from roundoff.studies.run_diff.study import diff_runs
from tests.report.documents import chain


def noisy(nodes: int, samples: int, *, seed: int, spread: float = 2.0) -> Array:
    """Decibels of nodes in samples: some samples are easier than others, and nodes differ."""
    generator = np.random.default_rng(seed)
    ease = generator.normal(0, spread, samples)
    return 30 + ease + generator.normal(0, 0.5 * spread, (nodes, samples))


def layer_run(
    levels: Array, *, names: Sequence[str] = (), data: str = "same", measure: str = "accumulated", **words: str
) -> RunDocument:
    """A run of layers in a chain of nodes.

    Args:
        levels: Decibels, of shape (nodes, samples).
        names: Of the tensors; t1, t2, ... by default, which is what `chain` calls them.
        data: By which the samples are known.
        measure: Local or accumulated.
        words: Operation by tensor; Conv by default.
    """
    names = names or [f"t{at + 1}" for at in range(len(levels))]
    rows = []
    for order, (name, line) in enumerate(zip(names, levels, strict=True)):
        score = LayerScore("ok", sqnr_db=float(line.mean()), sample_sqnr_db=keep_samples(line.tolist()))
        row = LayerRow(
            order, f"n{order}", words.get(name, "Conv"), f"n{order}", name, (1, 8), "float32", "u8",
            order == len(levels) - 1, levels.shape[1],
        )  # fmt: skip
        rows.append(replace(row, local=score) if measure == "local" else replace(row, accumulated=score))
    samples = tuple(str(at) for at in range(levels.shape[1]))
    verdict = LayerVerdict("fine", (names[-1],), True, "")
    report = LayerReport("m.onnx", samples, "both", "reference", verbatim(""), tuple(rows), verdict)
    return RunDocument(
        schema=SCHEMA,
        command=("roundoff", "layers", "m.onnx"),
        inputs=(InputFile("data", f"{data}.npy", 1, data, "content"),),
        network=chain(*(f"n{at}" for at in range(len(levels)))),
        layers=report,
        environment=Environment("0.1", "3.11", {"numpy": "2.0"}, "linux", verbatim("plain"), 1.0),
    )


def diffed(before: RunDocument, after: RunDocument, *, floor_db: float = 0.5, paired: bool = False) -> RunDiff:
    """What differs."""
    return diff_runs(("a", before), ("b", after), floor_db=floor_db, paired=paired)
