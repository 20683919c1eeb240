"""Whether the file of a quantized model computes what its quantizers say, and what in it is otherwise."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from roundoff.diagnosis.loss import Loss, LossMeter, decibels_of
from roundoff.diagnosis.registry import ask, explain, find_cause
from roundoff.diagnosis.result import Finding
from roundoff.diagnosis.subject import Case
from roundoff.errors import RoundoffError
from roundoff.graph.interface import outputs
from roundoff.graph.load import Model
from roundoff.messages.message import Message, message

__all__ = ["WORSE_DB", "FileCase", "FileSuspect", "check_file", "check_sums"]

WORSE_DB = 3.0
"""What a file loses beyond its quantizers, from which on something else is in it."""


@dataclass(frozen=True, slots=True, eq=False)
class FileCase:
    """A file under diagnosis, for the causes of files.

    Attributes:
        case: The float model and the quantizers that were read from the file.
        given: The file; None where only its quantizers are looked at.
        loss: What the file loses; None likewise.
        known: What causes have found out, by their own words, so that it is not found out again.
    """

    case: Case
    given: Model | None = None
    loss: Loss | None = None
    known: dict[str, Any] = field(default_factory=dict)

    def measured(self, model: Model) -> Loss | None:
        """What a changed file loses; None where its outputs are of another kind."""
        return _loss(self.case, model)


@dataclass(frozen=True, slots=True)
class FileSuspect:
    """What is suspected in a file.

    Attributes:
        nodes: Nodes whose sums may not fit; none where the file as a whole is suspected.
    """

    nodes: tuple[str, ...] = ()


def check_file(case: Case, given: Model) -> tuple[Message, Finding | None, Loss | None]:
    """Run the file, and compare its outputs with those of the float model and its quantizers.

    Args:
        case: The float model and the quantizers that were read from the file.
        given: The file.

    Returns:
        What came of it; where the file is worse than its quantizers a finding, and what it loses.
    """
    try:
        ours = _loss(case, given)
    except RoundoffError as error:
        return message("diagnosis.file_not_run", reason=str(error.what)), None, None
    if ours is None:
        return message("diagnosis.file_other_outputs"), None, None
    theirs = case.loss()
    if ours.excess_db(theirs) < WORSE_DB:
        return message("diagnosis.file_computes", db=decibels_of(ours.sqnr_db)), None, None
    found = explain(FileCase(case, given, ours), FileSuspect(), of="file", nodes=(), tensors=())
    if found is None or not found.proven:
        keeps, alone = decibels_of(ours.sqnr_db), decibels_of(theirs.sqnr_db)
        return message("diagnosis.file_more", db=keeps, other=alone), None, ours
    return found.summary, replace(found, share=1.0), ours


def check_sums(case: Case, nodes: Sequence[str]) -> Finding | None:
    """Whether sums of products overflow in this hardware, proven by making the accumulator wide.

    Args:
        case: The network.
        nodes: Nodes whose sums may not fit.

    Returns:
        A finding, with its number still open; None where nothing overflows, or nothing comes of it.

    Raises:
        BadInput: A quantizer has no integer version.
    """
    suspect = FileSuspect(tuple(nodes))
    asked = ask(find_cause("overflow", "file"), FileCase(case), suspect, nodes=(), tensors=())
    return replace(asked[0], share=1.0) if asked is not None and asked[0].proven else None


def _loss(case: Case, model: Model) -> Loss | None:
    """What a file loses; None where its outputs are of another kind."""
    runner = case.runner
    names = dict(zip(outputs(runner.model), outputs(model), strict=False))
    meter = LossMeter(runner.parts)
    for exact, arrays in runner.pairs(model, runner.few()):
        found = {name: arrays[names[name]] for name in exact if name in names}
        if any(name not in found or found[name].dtype != array.dtype for name, array in exact.items()):
            return None
        meter.add(exact, found)
    return meter.loss()
