"""Codes in the file of a quantized model that are dequantized in another way than they were quantized."""

from roundoff.diagnosis.checks import FileCase, FileSuspect
from roundoff.diagnosis.registry import Intervention, Signal, cause
from roundoff.diagnosis.result import Remedy
from roundoff.diagnosis.subject import loss_measures
from roundoff.graph.quantized_model import Oddity
from roundoff.graph.wiring import producer_names
from roundoff.messages.message import as_message, message

__all__ = ["FileDequantization"]


@cause("wrong-dequantization", of="file", order=20)
class FileDequantization:
    """Codes in the file are dequantized with another scale or zero point than they were quantized with."""

    def signal(self, case: FileCase, suspect: FileSuspect) -> Signal | None:
        """Whether a quantize node and its dequantize node disagree."""
        del suspect
        return Signal(1.0) if case.loss is not None and _disagreements(case) else None

    def intervene(self, case: FileCase, suspect: FileSuspect) -> Intervention | None:
        """The quantizers alone, which use one scale for both."""
        del suspect
        if case.loss is None:
            return None
        odd, right = _disagreements(case), case.case.loss()
        producers = producer_names(case.case.facts.nodes.values())
        names = tuple(dict.fromkeys(each.node for each in odd))
        return Intervention(
            message("diagnosis.file_pairs_changed"),
            loss_measures(case.loss, right),
            1.0 if right.value < case.loss.value else 0.0,
            as_message(odd[0].text),
            nodes=tuple(producers.get(name, name) for name in names),
            tensors=tuple(name for name in names if name in producers),
        )

    def remedy(self, case: FileCase, suspect: FileSuspect, proof: Intervention) -> Remedy:
        """The same scale on both sides."""
        del case, suspect, proof
        return Remedy(message("diagnosis.file_pairs_remedy"), "free")


def _disagreements(case: FileCase) -> list[Oddity]:
    return [each for each in case.case.facts.quantized.oddities if each.kind == "disagreement"]
