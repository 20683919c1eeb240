"""Rankings by a function of two outputs, a user's or a vendor's: of a node in float, and quantized alone."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from roundoff.core.progress import SILENT, Progress
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.insertion import switch_on
from roundoff.graph.interface import outputs
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.subgraph import tap
from roundoff.run.evaluators import call_user_code, load_user_module
from roundoff.run.session import Session, open_session
from roundoff.studies.sensitivity.subjects import find_subjects

__all__ = ["UserSensitivity", "load_sensitivity", "mean_scores", "scores_of_nodes", "worst_names"]

_EXAMPLE = "write a function compare(reference, candidate) of two arrays that returns a number"


@dataclass(frozen=True, slots=True)
class UserSensitivity:
    """A function of the user's that says how an output agrees with what it is in float.

    Attributes:
        path: The file.
        compare: The function, of two arrays.
        higher_is_better: Which way it is better.
    """

    path: Path
    compare: Callable[[Array, Array], Any]
    higher_is_better: bool

    def mean(self, ours: Sequence[Array], theirs: Sequence[Array]) -> float:
        """The mean over outputs of what the function says.

        Raises:
            BadInput: It failed.
        """

        def compare(left: Array, right: Array) -> float:
            return float(self.compare(left, right))

        pairs = zip(ours, theirs, strict=True)
        found = [call_user_code(compare, *pair, path=self.path, what="The sensitivity") for pair in pairs]
        return float(np.mean(found))


def load_sensitivity(path: Path) -> UserSensitivity:
    """Read a Python file with a function ``compare(reference, candidate)``.

    Raises:
        BadInput: The file cannot be read or run, or does not say which way its number is better.
    """
    what = "The sensitivity"
    module = load_user_module(path, what=what)
    compare, higher = getattr(module, "compare", None), getattr(module, "HIGHER_IS_BETTER", None)
    if not callable(compare):
        raise BadInput(f"{path} has no function compare(reference, candidate).", fix=_EXAMPLE)
    if higher is None:
        what = f"{path} does not say which way its number is better."
        raise BadInput(what, fix="add HIGHER_IS_BETTER = True, or False")
    return UserSensitivity(path, compare, bool(higher))


def mean_scores(
    pairs: Mapping[str, tuple[Session, Session]],
    batches: Iterable[Mapping[str, Mapping[str, Array]]],
    compare: Callable[[list[Array], list[Array]], float],
) -> dict[str, float]:
    """The mean over batches of what a function says of each node; none where there is no batch.

    Args:
        pairs: For each node what runs it in float, and quantized alone.
        batches: For each node what it is fed; batches come one after the other, so that one is held at a time.
        compare: Of both outputs.

    Raises:
        ModelFailed: A node cannot be run.
    """
    scores: dict[str, list[float]] = {name: [] for name in pairs}
    for feeds in batches:
        for name, pair in pairs.items():
            scores[name].append(compare(*(session.run(feeds[name]) for session in pair)))
    return {name: float(np.mean(each)) for name, each in scores.items() if each}


def scores_of_nodes(
    quantized: QuantizedModel,
    feeds: Sequence[Mapping[str, Array]],
    sensitivity: UserSensitivity,
    *,
    local: bool = False,
    threads: int | None = None,
    progress: Progress = SILENT,
) -> dict[str, float]:
    """What a function says of the outputs when one node alone is quantized, for each node.

    Args:
        quantized: The network.
        feeds: What it is run on.
        sensitivity: The function.
        local: Compare what a node itself hands on, instead of the outputs of the network.
        threads: Threads to use; all cores by default.
        progress: Told how far it is.

    Raises:
        BadInput: The function failed.
        ModelFailed: The network cannot be run.
    """
    model = quantized.float_model
    subjects = find_subjects(quantized, ["node"])
    by_name = {each.name: each for each in quantized.quantizers}
    ends = outputs(model)
    handed_on = {node.name: [name for name in node.output if name] for node in model.proto.graph.node}
    scores: dict[str, float] = {}
    progress.start("ranking nodes", len(subjects))
    try:
        for subject in subjects:
            wanted = handed_on[subject.node][:1] if local else ends
            alone = switch_on(model, [by_name[name] for name in subject.quantizers])
            plain, switched = (
                open_session(each, outputs=tap(each, wanted), threads=threads) for each in (model, alone)
            )
            batches = ({subject.name: feed} for feed in feeds)
            scores |= mean_scores({subject.name: (plain, switched)}, batches, sensitivity.mean)
            progress.advance()
    finally:
        progress.finish()
    return scores


def worst_names(scores: Mapping[str, float], *, higher_is_better: bool) -> tuple[str, ...]:
    """Names by their scores, the one that suffers most first; equal ones keep their order."""
    sign = 1.0 if higher_is_better else -1.0
    return tuple(sorted(scores, key=lambda name: sign * scores[name]))
