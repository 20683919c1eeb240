"""What of a network and of its dumps was compared, and who introduces an error or inherits it."""

import math
from collections.abc import Collection, Mapping, Sequence

from roundoff.align.pairing import Pairing
from roundoff.core.coverage import (
    LeftOut,
    OutputCoverage,
    Share,
    Unjudged,
    UnplacedFile,
    WhyLeftOut,
    WhyUnjudged,
    WhyUnplaced,
)
from roundoff.core.tensors import TensorInfo, TensorSource, Topology
from roundoff.measure.classes import INDEX_TYPES
from roundoff.measure.metrics import Status
from roundoff.studies.compare.result import Role, TensorComparison

# So many names of what was left out are kept, and of what a file of a dump could be.
_NAMED, _COULD_BE = 3, 8
_WHY: dict[Status, WhyUnjudged] = {
    "nonfinite": "nonfinite",
    "shape": "shape",
    "missing": "unreadable",
    "unreadable": "unreadable",
}
# These pass their input on unchanged: when it was compared, so was their output.
_FORWARDING = frozenset(["Dropout", "Flatten", "Identity", "Reshape", "Squeeze", "Unsqueeze"])


# More than this part of the error's energy must be a tensor's own for it to introduce an error.
_OWN = 0.5
# Behind a culprit operations enlarge what they read: this part of the error from there makes it an inherited one.
_INHERITED = 1 / 3


def roles(
    topology: Topology, failed: Mapping[str, bool], errors: Mapping[str, float] | None = None
) -> dict[str, Role]:
    """Tell culprits from victims.

    A tensor that was not compared is taken for wrong when something above it is. One whose error is mostly that of
    what it reads introduces none, although that may be just within a limit; what comes from a culprit may
    have been enlarged on the way.

    Args:
        topology: The reference network.
        failed: For each compared tensor, whether it differs.
        errors: The relative error of those that have one.

    Returns:
        The role of each failing tensor of the network.
    """
    sizes = errors or {}
    wrong: dict[str, bool] = {name: failed.get(name, False) for name in topology.inputs}
    size = {name: sizes.get(name, 0.0) for name in topology.inputs}
    result: dict[str, Role] = {name: "introduces" for name in topology.inputs if failed.get(name, False)}
    behind = set(result)
    for node in topology.nodes:
        inherited = any(wrong.get(name, False) for name in node.inputs)
        most = max((size.get(name, 0.0) for name in node.inputs), default=0.0)
        from_culprits = max((size.get(name, 0.0) for name in node.inputs if name in behind), default=0.0)
        if behind.intersection(node.inputs):
            behind.update(node.outputs)
        for output in node.outputs:
            wrong[output] = failed.get(output, inherited)
            size[output] = sizes.get(output, most)
            if failed.get(output, False):
                mostly = most**2 > _OWN * size[output] ** 2 or from_culprits >= _INHERITED * size[output]
                handed_on = inherited or (output in sizes and most > 0 and mostly)
                result[output] = "victim" if handed_on else "introduces"
                behind.add(output)
    return result


def compared_outputs(topology: Topology, compared: Collection[str]) -> dict[str, str | None]:
    """For each output of the network what was compared: itself, or what it only forwards; None for neither."""
    producers = topology.producers()

    def seen(name: str) -> str | None:
        if name in compared:
            return name
        node = producers.get(name)
        return seen(node.inputs[0]) if node is not None and node.op_type in _FORWARDING and node.inputs else None

    return {name: seen(name) for name in topology.outputs}


def output_coverage(
    rows: Sequence[TensorComparison],
    sources: tuple[TensorSource, TensorSource],
    pairing: Pairing,
    topology: Topology | None,
) -> OutputCoverage:
    """Which outputs were judged.

    Without the network the last tensor of a reference that is in order is its output; in one that is not in order
    any tensor may be one.

    Args:
        rows: What was compared.
        sources: The reference and the candidate.
        pairing: Which tensor is which.
        topology: The reference network; None when it is unknown.
    """
    by_name = {row.reference: row for row in rows}
    ours = {info.name: info for info in sources[0].tensors}
    spare = [info for info in sources[1].tensors if info.name in set(pairing.unmatched_candidate)]
    known = topology is not None or sources[0].ordered
    if topology is not None:
        seen: Mapping[str, str | None] = compared_outputs(topology, by_name)
    else:
        names = list(ours)[-1:] if known else list(ours)
        seen = {name: name if name in by_name else None for name in names}
    judged, not_judged = [], []
    for name, stand_in in seen.items():
        # What has no element shows nothing, and hides nothing.
        if stand_in is not None and 0 in by_name[stand_in].shapes[0]:
            continue
        why = (
            why_unmatched(name, ours.get(name), spare) if stand_in is None else _unjudged(name, by_name[stand_in])
        )
        if why is None:
            judged.append(name)
        else:
            not_judged.append(why)
    equal = [name for name in judged if by_name[seen[name] or name].dtypes[0] in INDEX_TYPES]
    return OutputCoverage(tuple(judged), tuple(not_judged), known, tuple(equal) if topology is not None else ())


def why_unmatched(name: str, info: TensorInfo | None, spare: Collection[TensorInfo]) -> Unjudged:
    """Why a tensor has no partner: there is none, or none of those without a partner is certain to be it.

    Args:
        name: The tensor.
        info: What is known of it.
        spare: Tensors of the other side without a partner.
    """
    sizes = {each.size for each in spare}
    could_be = bool(sizes) if info is None else info.size in sizes
    return Unjudged(name, "unmatched" if could_be else "missing")


def files_share(files: Sequence[TensorInfo], spare: Sequence[TensorInfo], copies: Collection[str]) -> Share:
    """How many tensors of a dump were placed; those that are others in another form are no riddle."""
    unknown = [info.name for info in spare if info.name not in copies]
    reasons = left_out(("not_placed", unknown), ("copy", list(copies)))
    return Share(len(files), len(files) - len(unknown) - len(copies), reasons)


def unplaced_files(
    spare: Sequence[TensorInfo], lonely: Sequence[TensorInfo], copies: Collection[str]
) -> tuple[UnplacedFile, ...]:
    """Why tensors of a dump belong to none of the network.

    Args:
        spare: Tensors of the dump without a partner.
        lonely: Tensors of the network without one.
        copies: Tensors of the dump that are others in another form; they need no place.
    """
    found = []
    for info in (each for each in spare if each.name not in copies):
        could_be = tuple(each.name for each in lonely if each.dtype and each.size == info.size)[:_COULD_BE]
        why: WhyUnplaced = "unreadable" if info.problem else "uncertain" if could_be else "size"
        found.append(UnplacedFile(info.name, why, info.shape, () if info.problem else could_be))
    return tuple(found)


def _unjudged(name: str, row: TensorComparison) -> Unjudged | None:
    """Why the scores of an output say nothing; None when they do."""
    scored = row.score
    if scored.status in _WHY:
        return Unjudged(name, _WHY[scored.status], scored.detail)
    if not scored.values or any(math.isnan(value) for value in scored.values.values()):
        return Unjudged(name, "nonfinite", scored.detail)
    return None


def left_out(*reasons: tuple[WhyLeftOut, Sequence[str]]) -> tuple[LeftOut, ...]:
    """What was not judged, by reason, with the first names of each."""
    return tuple(LeftOut(why, len(names), tuple(names[:_NAMED])) for why, names in reasons if names)
