"""More and more of a network left in float or raised to 16 bits, and what that brings."""

import math
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from roundoff.core.files import read_small
from roundoff.core.names import shown
from roundoff.core.progress import SILENT, Progress
from roundoff.core.quantizers import Quantizer, QuantParams, QuantSpec, SwitchedSubject
from roundoff.core.tensors import Array
from roundoff.core.untrusted import parse_csv, parse_json
from roundoff.errors import BadInput, nearest
from roundoff.graph.interface import check_repeatable
from roundoff.graph.quantized_model import QuantizedModel, has_exact_weights
from roundoff.graph.switches import Switches
from roundoff.messages.message import Message, english, message
from roundoff.messages.numbers import first_of
from roundoff.run.capture import Samples
from roundoff.studies.partial.result import (
    PartialQuantization,
    PartialSettings,
    PartialStep,
    Raise,
    check_settings,
    drops,
    knee,
    levels_off,
)
from roundoff.studies.partial.scores import Chunks, PartialScores, by_evaluator, by_outputs

WIDE_BITS = 16
"""What quantizers are raised to."""


def raised(quantizer: Quantizer, *, signed: bool) -> Quantizer:
    """A quantizer with codes of 16 bits for the range it has; one that has as many bits already stays as it is.

    The step shrinks by what the number of codes grows: 65,535 / 255 = 257 for 8 bits, 32,767 / 127 where the scale
    is the largest magnitude over the largest code. Scales that are powers of two, or were chosen by the side of
    the larger magnitude, shrink by 256, which keeps them what they are.

    Args:
        quantizer: The quantizer.
        signed: Whether the new codes can be negative.
    """
    old = quantizer.spec
    if old.bits >= WIDE_BITS:
        return quantizer
    spec = replace(old, bits=WIDE_BITS, signed=signed)
    params = quantizer.params
    scale = params.scale.astype(np.float64) * _shrinking(old, spec)
    if old.symmetric:
        zero_point = np.full(params.zero_point.shape, 0 if signed else 1 << (WIDE_BITS - 1), dtype=np.int64)
    else:
        zero_point = _zero_point(old, spec, params)
    return replace(quantizer, spec=spec, params=QuantParams(scale.astype(np.float32), zero_point), codes=None)


def _shrinking(old: QuantSpec, new: QuantSpec) -> float:
    if old.power_of_two or (old.symmetric and old.symmetric_scale == "larger_side"):
        return 2.0 ** (old.bits - new.bits)
    if old.symmetric and old.symmetric_scale == "max_code":
        return _positive_codes(old) / _positive_codes(new)
    return (2.0**old.bits - 1) / (2.0**new.bits - 1)


def _positive_codes(spec: QuantSpec) -> float:
    return 2.0 ** (spec.bits - 1) - 1


def _zero_point(old: QuantSpec, new: QuantSpec, params: QuantParams) -> Array:
    """The code for zero, as far from the lowest code as before, in values."""
    lowest = -(1 << (old.bits - 1)) if old.signed else 0
    steps = (params.zero_point - lowest) / _shrinking(old, new)
    new_lowest = -(1 << (new.bits - 1)) if new.signed else 0
    return np.asarray(np.clip(np.rint(new_lowest + steps), new.code_min, new.code_max).astype(np.int64))


class Changes:
    """The quantizers of a model with some of them off, or raised to 16 bits.

    Weights get signed codes, as on any chip. Biases of nodes with a raised input stay in float: sums of products
    of 16 bits are kept in more than the 32 bits that biases have, and their steps are that much finer.

    Args:
        quantizers: All of them.
        to: What those that are changed become.
    """

    def __init__(self, quantizers: Sequence[Quantizer], to: Raise) -> None:
        self._quantizers, self._to = quantizers, to
        # Made once: whoever runs several choices knows by them what the choices have in common.
        self._raised = {
            each.name: raised(each, signed=to == "s16" or each.kind == "weight")
            for each in quantizers
            if to != "float" and each.kind != "bias"
        }

    def with_changed(self, names: Iterable[str]) -> tuple[Quantizer, ...]:
        """The quantizers that are on when these are changed."""
        chosen = frozenset(names)
        if self._to == "float":
            return tuple(each for each in self._quantizers if each.name not in chosen)
        nodes = {consumer.node for each in self._quantizers if each.name in chosen for consumer in each.consumers}
        found = []
        for each in self._quantizers:
            if each.kind == "bias":
                if not any(consumer.node in nodes for consumer in each.consumers):
                    found.append(each)
            else:
                found.append(self._raised[each.name] if each.name in chosen else each)
        return tuple(found)


_NAME_COLUMNS = ("name", "subject", "node", "quantizer")
_RULER = re.compile(r"[=\-\s]*|=+[^=]+=+")
# What vendors' tables call their first column.
_HEADINGS = ("node", "weight", "activation", "name")
_FIX = english(
    "give the run.json of 'roundoff sensitivity', a CSV with a column name, or a file with one name per line"
)


def read_ranking(path: Path, kind: str) -> tuple[str, ...]:
    """Names in a file, worst first.

    Read are run documents of ``roundoff sensitivity``, JSON lists of names or objects whose keys are names, CSV
    with a column ``name`` (and ``kind``, of which only the wanted one counts), printed tables of vendors' tools
    whose first column is the name, and plain lists of one name per line.

    Args:
        path: The file, or a folder with a run.json.
        kind: Which ranking, where there are several: ``node``, ``weight`` or ``activation``.

    Raises:
        BadInput: It cannot be read, or names nothing.
    """
    file = path / "run.json" if path.is_dir() else path
    text = read_small(file, what=english("The ranking")).decode("utf-8", errors="replace")
    if text.lstrip().startswith(("{", "[")):
        names = _from_json(text, file, kind)
    elif file.suffix.lower() == ".csv":
        names = _from_csv(text, file, kind)
    else:
        names = _from_lines(text)
    found = tuple(dict.fromkeys(name for name in names if name))
    if not found:
        raise BadInput(english("{file} ranks nothing of the kind {kind}.", file=file, kind=kind), fix=_FIX)
    return found


def _from_json(text: str, path: Path, kind: str) -> list[str]:
    content = parse_json(text, path, fix=_FIX)
    if isinstance(content, dict) and ("sensitivity" in content or {"schema", "command"} <= content.keys()):
        rankings = content.get("sensitivity", {})
        rankings = rankings.get("rankings", {}) if isinstance(rankings, dict) else {}
        content = rankings.get(kind, ()) if isinstance(rankings, dict) else ()
    return [_name(each) for each in content] if isinstance(content, dict | list) else []


def _name(row: Any) -> str:
    """The name in a row of a ranking, however deep it lies."""
    while isinstance(row, dict):
        row = next((row[key] for key in ("score", "subject", "name") if key in row), "")
    return row if isinstance(row, str) else ""


def _from_csv(text: str, path: Path, kind: str) -> list[str]:
    rows = parse_csv(text, path)
    headings = [cell.strip().casefold() for cell in rows[0]] if rows else []
    column = next((headings.index(name) for name in _NAME_COLUMNS if name in headings), None)
    if column is None:
        return [row[0].strip() for row in rows]
    kinds = headings.index("kind") if "kind" in headings else None
    return [
        _unguarded(row[column].strip())
        for row in rows[1:]
        if len(row) > column and (kinds is None or _cell(row, kinds) == kind)
    ]


def _cell(row: Sequence[str], column: int) -> str:
    return row[column].strip() if column < len(row) else ""


def _unguarded(name: str) -> str:
    """A name without the apostrophe that keeps spreadsheets from computing it."""
    return name[1:] if name.startswith(("'=", "'+", "'-", "'@")) else name


def _from_lines(text: str) -> list[str]:
    names = []
    for line in text.splitlines():
        if _RULER.fullmatch(line.strip()) or line.lstrip().startswith("#"):
            continue
        cells = re.split(r"\s{2,}|\t", line.strip())
        if len(cells) > 1 and cells[0].casefold() in _HEADINGS:
            continue
        names.append(cells[0])
    return names


_DEFAULT_SETTINGS = PartialSettings()
_MOST_NAMED = 3


def sweep(
    quantized: QuantizedModel,
    samples: Samples,
    subjects: Sequence[SwitchedSubject],
    settings: PartialSettings = _DEFAULT_SETTINGS,
    *,
    progress: Progress = SILENT,
    elsewhere: Chunks | None = None,
) -> PartialQuantization:
    """Score a network with the first 0, 1, 2 ... subjects left in float or raised to 16 bits.

    Args:
        quantized: The float model and its quantizers.
        samples: What to run it on.
        subjects: What to change, in this order.
        settings: What to measure, and what to reach.
        progress: Told how far it is.
        elsewhere: What runs samples in other processes; None for nobody, nor for an evaluator.

    Raises:
        BadInput: The model, the samples and the settings do not fit together.
        ModelFailed: The model cannot be run.
        KeyboardInterrupt: Ctrl-C came before anything was measured.
    """
    _check(quantized, subjects, settings)
    check_repeatable(quantized.float_model)
    tried = subjects[: settings.top]
    added = list(_added(tried))
    changes = Changes(quantized.quantizers, settings.to)
    choices = [
        changes.with_changed(name for names in added[:count] for name in names) for count in range(len(added) + 1)
    ]
    model, evaluator = quantized.float_model, settings.evaluator
    if evaluator is None:
        measured = by_outputs(model, samples, choices, settings, progress=progress, elsewhere=elsewhere)
    else:
        measured = by_evaluator(model, samples, choices, settings, evaluator=evaluator, progress=progress)
    higher = measured.higher_is_better
    return PartialQuantization(
        reference=shown(model.path),
        samples=len(samples.names[: settings.samples]),
        score=measured.name,
        higher_is_better=higher,
        float_score=measured.float_score,
        to=settings.to,
        ranking=settings.ranking,
        subjects=tuple(subject.name for subject in subjects),
        steps=tuple(_steps(measured, tried, added)),
        goal=measured.goal,
        knee=knee(measured.scores, measured.goal, higher_is_better=higher),
        levels_off=levels_off(measured.scores, higher_is_better=higher),
        drops=drops(measured.scores, higher_is_better=higher),
        complete=not measured.interrupted,
        exact_weights=has_exact_weights(quantized),
        notes=(*quantized.notes, *_notes(quantized, tried, settings, measured)),
        preparation=quantized.preparation,
    )


def _check(quantized: QuantizedModel, subjects: Sequence[SwitchedSubject], settings: PartialSettings) -> None:
    known = {each.name for each in quantized.quantizers}
    if not subjects:
        raise BadInput(
            english("There is nothing to leave in float."), fix=english("name at least one node with --nodes")
        )
    for subject in subjects:
        for name in subject.quantizers:
            if name not in known:
                what = english(
                    "{name!r} has the quantizer {name2!r}, which the model does not have.",
                    name=subject.name,
                    name2=name,
                )
                raise BadInput(what, fix=nearest(name, known))
    check_settings(settings, labelled=settings.labels is not None)


def _added(subjects: Sequence[SwitchedSubject]) -> Iterator[tuple[str, ...]]:
    """The quantizers that each subject changes, without those that earlier ones changed already."""
    seen: set[str] = set()
    for subject in subjects:
        fresh = tuple(name for name in subject.quantizers if name not in seen)
        seen.update(fresh)
        yield fresh


def _steps(
    measured: PartialScores, subjects: Sequence[SwitchedSubject], added: Sequence[tuple[str, ...]]
) -> Iterator[PartialStep]:
    whole = measured.float_score
    comparable = whole > 0 and math.isfinite(whole)
    for count, (score, others) in enumerate(zip(measured.scores, measured.others, strict=True)):
        yield PartialStep(
            count=count,
            subject=subjects[count - 1].name if count else "",
            op_type=subjects[count - 1].op_type if count else "",
            quantizers=added[count - 1] if count else (),
            score=score,
            share=score / whole if comparable else None,
            scores=others,
        )


def _notes(
    quantized: QuantizedModel, tried: Sequence[SwitchedSubject], settings: PartialSettings, measured: PartialScores
) -> Iterator[Message]:
    chosen = {name for subject in tried for name in subject.quantizers}
    wide = [
        each.name
        for each in quantized.quantizers
        if each.name in chosen and each.kind != "bias" and each.spec.bits >= WIDE_BITS
    ]
    if wide and settings.to != "float":
        few = first_of(wide, _MOST_NAMED)
        yield message("partial.note_wide", count=len(wide), names=few)
    if has_exact_weights(quantized):
        yield message("partial.note_exact_weights")
    if measured.interrupted:
        yield message("partial.note_interrupted", done=len(measured.scores), all=len(tried) + 1)


# What a sweep changes, by name.


def named_subjects(quantized: QuantizedModel, names: Sequence[str]) -> tuple[SwitchedSubject, ...]:
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
        found.append(SwitchedSubject(name, "group", quantizers, node=node, op_type=op_types.get(node, "")))
    return tuple(found)
