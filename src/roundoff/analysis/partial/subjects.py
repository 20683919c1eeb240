"""What a sweep changes, and in which order: as ranked, as named, or as a file says."""

from collections.abc import Sequence

from roundoff.analysis.sensitivity import SensitivitySettings, whole_sensitivity
from roundoff.analysis.switches import Switches
from roundoff.core.progress import SILENT, Progress
from roundoff.core.sensitivity import Sensitivity, Subject, SubjectKind
from roundoff.errors import BadInput
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.runtime.feeds import Samples

__all__ = ["RANKING_SAMPLES", "named_subjects", "ranked_subjects"]

# As many ranks as a sweep takes are to be right.
_LEADING = 20
RANKING_SAMPLES = 64
"""A ranking is made on so many samples at most, evenly spread; a sweep may take thousands."""


def named_subjects(quantized: QuantizedModel, names: Sequence[str]) -> tuple[Subject, ...]:
    """Subjects for names, in their order; see `Switches` for what names mean.

    Raises:
        BadInput: A name means nothing that is quantized.
    """
    switches = Switches(quantized)
    op_types = {node.name: node.op_type for node in quantized.float_model.proto.graph.node}
    found = []
    for name in dict.fromkeys(names):
        quantizers = switches.find(name)
        read = {consumer.node for each in switches.select(quantizers) for consumer in each.consumers}
        node = name if name in op_types else read.pop() if len(read) == 1 else ""
        found.append(Subject(name, "group", quantizers, node=node, op_type=op_types.get(node, "")))
    return tuple(found)


def ranked_subjects(
    quantized: QuantizedModel,
    samples: Samples,
    kind: SubjectKind,
    *,
    max_memory: int | None = None,
    threads: int | None = None,
    progress: Progress = SILENT,
) -> tuple[tuple[Subject, ...], Sensitivity]:
    """Subjects of a kind, the one first that hurts most when it alone is quantized.

    Args:
        quantized: The network.
        samples: What to measure it on.
        kind: Nodes, weights or activations.
        max_memory: Bytes the process may take; most of the free memory by default.
        threads: Threads to use; all cores by default.
        progress: Told how far it is.

    Returns:
        The subjects, and the whole ranking.
    """
    settings = SensitivitySettings(
        kinds=(kind,), samples=RANKING_SAMPLES, top=_LEADING, max_memory=max_memory, threads=threads
    )
    found = whole_sensitivity(quantized, samples, settings, progress=progress)
    if kind not in found.rankings:
        what = f"No output of {quantized.float_model.path} depends on anything that is quantized."
        raise BadInput(what, fix="quantize what leads to the outputs")
    return tuple(row.score.subject for row in found.rankings.get(kind, ())), found
