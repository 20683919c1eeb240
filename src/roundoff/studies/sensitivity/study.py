"""The whole analysis: what is switched, on which samples, and what follows from it."""

import math
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np

from roundoff.core.progress import SILENT, Progress
from roundoff.core.quantizers import SubjectKind, SwitchedSubject
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.interface import check_repeatable, find_outputs, other_outputs
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.graph.switches import MOST_NAMED
from roundoff.measure.metrics import Metric, require
from roundoff.measure.rows import ROW_FIELDS
from roundoff.messages.message import Message, english, message, some
from roundoff.run.bench import spread
from roundoff.run.capture import Samples
from roundoff.run.session import release_shared_memory
from roundoff.studies.sensitivity.exact import NOISE_MARGIN_DB, ExactEngine, Journal, Measurement
from roundoff.studies.sensitivity.ranking import (
    SensitivitySettings,
    find_subjects,
    leading,
    pooled_sqnr_db,
    rank,
    summarize,
)
from roundoff.studies.sensitivity.result import Effort, Sensitivity, SubjectScore

# Measuring in stages: all subjects on few samples, the leading ones on all, as far as time allows.

EVERYTHING = SwitchedSubject("everything", "group", ())
"""Stands for all quantizers together."""

# Of the time that is left, the first stage may take this share; the rest is for the leading subjects.
_FIRST_SHARE = 0.6

_Values = tuple[tuple[int, ...], Array]

Elsewhere = Callable[
    [ExactEngine, Sequence[SwitchedSubject], Sequence[SwitchedSubject]], Generator[Measurement, None, None]
]
"""Measures some subjects, on the samples that an engine has loaded for others, somewhere else."""


class ProgressListeners:
    """Who is told of what is done.

    Args:
        progress: Told how far it is.
        on_result: Called with each subject as soon as it is measured.
        elsewhere: Measures subjects in place of the engine; None for nobody.
    """

    def __init__(
        self,
        progress: Progress,
        on_result: Callable[[SubjectScore], None] | None,
        elsewhere: "Elsewhere | None" = None,
    ) -> None:
        self.progress = progress
        self.on_result = on_result
        self.elsewhere = elsewhere


class SensitivityStages:
    """Measurements under way.

    Args:
        engine: What measures.
        settings: With what effort.
        subjects: What to measure.
        journal: What is known from earlier runs, and where the new is written.
        audience: Who is told.

    Attributes:
        values: What was measured of each subject: indices of samples, and sums; see `roundoff.measure.rows`.
        leaders: Subjects that lead after the first stage.
        first: Samples of the first stage.
        resumed: Subjects that were found in the journal.
        complete: Whether everything was done.
        notes: What the reader should know.
    """

    values: dict[SwitchedSubject, _Values]
    leaders: tuple[SwitchedSubject, ...]
    first: tuple[int, ...]
    resumed: set[SwitchedSubject]
    complete: bool
    notes: list[Message]

    def __init__(
        self,
        engine: ExactEngine,
        settings: SensitivitySettings,
        subjects: Sequence[SwitchedSubject],
        journal: Journal,
        audience: ProgressListeners,
    ) -> None:
        self._engine, self._settings, self._subjects = engine, settings, tuple(subjects)
        self._journal, self._audience = journal, audience
        self._metrics: tuple[Metric, ...] = _metrics(settings)
        self.values, self.leaders, self.first = {}, (), ()
        self.resumed, self.complete, self.notes = set(), False, []
        self._twins: dict[frozenset[str], list[SwitchedSubject]] = {}
        for subject in self._subjects:
            self._twins.setdefault(frozenset(subject.quantizers), []).append(subject)

    def run(self, indices: Sequence[int], deadline: float | None) -> None:
        """Measure on these samples until the deadline."""
        settings = self._settings
        first = len(indices) if settings.exact else settings.begin_with
        self.first = tuple(indices[at] for at in spread(len(indices), first))
        self._load(self._subjects, self.first, deadline)
        done = self._measure(self._subjects, "measuring all", deadline)
        if done < len(self._subjects):
            self.notes.append(message("sensitivity.note_subjects", done=done, all=len(self._subjects)))
            return
        taken = frozenset(self.first)
        rest = tuple(index for index in indices if index not in taken)
        if rest:
            self.leaders = self._leading()
            self._engine.load(rest, self.leaders, progress=self._audience.progress)
            done = self._measure(self.leaders, "measuring the leading ones", deadline)
            if done < len(self.leaders):
                self.notes.append(message("sensitivity.note_leading", done=done, all=len(self.leaders)))
                return
        self.complete = True

    def score(self, subject: SwitchedSubject) -> SubjectScore:
        """Scores and intervals of what was measured of a subject."""
        return summarize(subject, *self.values[subject], self._metrics)

    def _load(self, subjects: Sequence[SwitchedSubject], samples: tuple[int, ...], deadline: float | None) -> None:
        """Take the first samples; fewer of them when all subjects could not be measured on them in time."""
        begun = time.monotonic()
        self._engine.load(samples, subjects, progress=self._audience.progress)
        if deadline is None:
            return
        now = time.monotonic()
        expected, allowed = (now - begun) * self._engine.passes(subjects), (deadline - now) * _FIRST_SHARE
        fewer = int(len(samples) * allowed / expected) if expected > 0 else len(samples)
        if fewer < len(samples):
            self.first = tuple(samples[at] for at in spread(len(samples), max(1, fewer)))
            self.notes.append(message("sensitivity.note_fewer", count=len(self.first)))
            self._engine.load(self.first, subjects, progress=self._audience.progress)

    def _measure(self, subjects: Sequence[SwitchedSubject], title: str, deadline: float | None) -> int:
        """Measure subjects on the samples that are loaded; gives how many were."""
        engine, progress = self._engine, self._audience.progress
        asked = frozenset(subjects)
        # Those that switch the same quantizers, such as a node with one of them and that one, are measured once.
        different = list({frozenset(subject.quantizers): subject for subject in reversed(subjects)}.values())[::-1]
        if self._settings.mode == "left_out":
            self._add(EVERYTHING, engine.base_sums())
        done = 0
        progress.start(title, sum(engine.cost(subject) for subject in different))
        try:
            waiting = []
            for subject in different:
                known = self._journal.find(engine.key(subject)) if self._journal.used else None
                if known is None:
                    waiting.append(subject)
                else:
                    done += self._take(subject, known, asked, resumed=True)
            elsewhere = self._audience.elsewhere
            if elsewhere is None:
                measuring = engine.measure(self._ordered(waiting, deadline), deadline=deadline)
            else:
                measuring = elsewhere(engine, waiting, engine.loaded_for)
            with closing(measuring) as found:
                for subject, values in found:
                    if self._journal.used:
                        self._journal.add(engine.key(subject), values)
                    done += self._take(subject, values, asked)
        finally:
            progress.finish()
        return done

    def _ordered(self, subjects: list[SwitchedSubject], deadline: float | None) -> list[SwitchedSubject]:
        """Should time run out, what is done is not just the beginning of the network."""
        if deadline is None:
            return subjects
        order = np.random.default_rng(self._settings.seed).permutation(len(subjects))
        return [subjects[at] for at in order]

    def _take(
        self, subject: SwitchedSubject, values: Array, asked: frozenset[SwitchedSubject], *, resumed: bool = False
    ) -> int:
        """Take in what was measured of a subject, for all that switch the same; gives how many these are."""
        twins = [each for each in self._twins[frozenset(subject.quantizers)] if each in asked]
        for twin in twins:
            self._add(twin, values)
            if self._audience.on_result is not None:
                self._audience.on_result(self.score(twin))
        if resumed:
            self.resumed.update(twins)
        self._audience.progress.advance(self._engine.cost(subject))
        return len(twins)

    def _add(self, subject: SwitchedSubject, values: Array) -> None:
        """Join sums, of the samples that are loaded, with those of others, in the order of the samples."""
        samples = self._engine.loaded
        if subject in self.values:
            before, earlier = self.values[subject]
            samples, values = (*before, *samples), np.concatenate([earlier, values])
        order = sorted(range(len(samples)), key=samples.__getitem__)
        self.values[subject] = tuple(samples[at] for at in order), values[order]

    def _leading(self) -> tuple[SwitchedSubject, ...]:
        """Those that may be among the first of their kind by what ranks."""
        settings, ranking = self._settings, self._metrics[:1]
        kinds: dict[SubjectKind, list[SubjectScore]] = {}
        for subject in self._subjects:
            kinds.setdefault(subject.kind, []).append(summarize(subject, *self.values[subject], ranking))
        chosen = frozenset(
            subject
            for scores in kinds.values()
            for subject in leading(scores, ranking, mode=settings.mode, top=settings.top)
        )
        return tuple(subject for subject in self._subjects if subject in chosen)


def analyze_sensitivity(  # noqa: PLR0913 - what, how, and who is told or asked
    quantized: QuantizedModel,
    samples: Samples,
    settings: SensitivitySettings,
    *,
    progress: Progress = SILENT,
    journal: Path | None = None,
    on_result: Callable[[SubjectScore], None] | None = None,
    elsewhere: Elsewhere | None = None,
) -> Sensitivity:
    """Measure what each part of a network does to its outputs when it alone is quantized, or alone left in float.

    By default all subjects are measured on a few samples, and those that lead then on all; a fast analysis takes
    fewer in both. Ctrl-C ends the analysis with what is done so far.

    Args:
        quantized: The float model and its quantizers.
        samples: What to run it on.
        settings: What to measure, and with what effort.
        progress: Told how far it is.
        journal: File that remembers what is measured, so that a later run can go on where this one was ended.
        on_result: Called with each subject as soon as it is measured; again when it is measured on more samples.
        elsewhere: Measures subjects in place of the engine; None for nobody.

    Raises:
        BadInput: The model, the samples and the settings do not fit together.
        ModelFailed: The model cannot be run.
        KeyboardInterrupt: Ctrl-C came before anything was measured.
    """
    deadline = None if settings.budget_s is None else time.monotonic() + settings.budget_s
    _check(settings)
    chosen = settings.subjects or _subjects(quantized, settings)
    total = len(samples.names)
    indices = spread(total, total if settings.most_samples is None else settings.most_samples)
    wanted = find_outputs(quantized.float_model, settings.outputs)
    check_repeatable(quantized.float_model, wanted)
    engine = ExactEngine(quantized, samples, settings, subjects=chosen, outputs=wanted, indices=indices)
    reached = tuple(subject for subject in chosen if engine.reaches(subject))
    memory = Journal(journal)
    stages = SensitivityStages(
        engine, settings, reached, memory, ProgressListeners(progress, on_result, elsewhere)
    )
    if memory.damaged:
        stages.notes.append(message("sensitivity.note_damaged", file=str(journal), count=memory.damaged))
    try:
        stages.run(indices, deadline)
    except KeyboardInterrupt:
        if not stages.values:
            raise
        done = len(stages.values)
        stages.notes.append(message("sensitivity.note_interrupted", done=done, all=len(reached)))
    finally:
        engine.close()
        memory.close()
    if settings.fast and stages.complete and len(stages.first) < total:
        counts = {"some": len(stages.first), "all": total, "most": len(indices)}
        stages.notes.append(message("sensitivity.note_fast", **counts))
    unreached = tuple(subject for subject in chosen if subject not in frozenset(reached))
    if not settings.outputs:
        stages.notes[:0] = other_outputs(quantized.float_model, wanted)
    result = _result(stages, engine, settings, samples, subjects=(reached, unreached))
    del stages, engine
    release_shared_memory()
    return result


def whole_sensitivity(
    quantized: QuantizedModel, samples: Samples, settings: SensitivitySettings, *, progress: Progress = SILENT
) -> Sensitivity:
    """The same for those to whom a part of it is of no use, and who set no budget: Ctrl-C ends them, too.

    Args:
        quantized: The float model and its quantizers.
        samples: What to run it on.
        settings: What to measure, and with what effort.
        progress: Told how far it is.

    Raises:
        BadInput: The model, the samples and the settings do not fit together.
        ModelFailed: The model cannot be run.
        KeyboardInterrupt: Ctrl-C came before everything was measured.
    """
    found = analyze_sensitivity(quantized, samples, settings, progress=progress)
    if not found.complete:
        raise KeyboardInterrupt
    return found


def _check(settings: SensitivitySettings) -> None:
    _metrics(settings)
    numbers = {"--samples": settings.samples, "--first-samples": settings.first_samples, "--top": settings.top}
    numbers["--blocks"] = settings.blocks
    for option, number in numbers.items():
        if number is not None and number < 1:
            raise BadInput(
                english("{option} {number} is not a number of things.", option=option, number=number),
                fix=english("give {option} 1 or more", option=option),
            )
    if settings.budget_s is not None and not settings.budget_s > 0:
        raise BadInput(
            english("A budget of {budget_s} seconds leaves no time.", budget_s=settings.budget_s),
            fix=english("give a positive time"),
        )


def _metrics(settings: SensitivitySettings) -> tuple[Metric, ...]:
    return require(settings.metrics, command="sensitivity", offers=ROW_FIELDS)


def _subjects(quantized: QuantizedModel, settings: SensitivitySettings) -> tuple[SwitchedSubject, ...]:
    return find_subjects(quantized, settings.kinds, patterns=settings.nodes, groups=settings.groups)


def _result(
    stages: SensitivityStages,
    engine: ExactEngine,
    settings: SensitivitySettings,
    samples: Samples,
    *,
    subjects: tuple[tuple[SwitchedSubject, ...], tuple[SwitchedSubject, ...]],
) -> Sensitivity:
    metrics = _metrics(settings)
    reached, unreached = subjects
    by_kind: dict[SubjectKind, list[SubjectScore]] = {}
    for subject in reached:
        if subject in stages.values:
            by_kind.setdefault(subject.kind, []).append(stages.score(subject))
    network = engine.network
    return Sensitivity(
        mode=settings.mode,
        metrics=tuple(metric.name for metric in metrics),
        outputs=network.cutting.wanted,
        samples=samples.names,
        rankings={
            kind: rank(scores, metrics, mode=settings.mode, leaders=stages.leaders)
            for kind, scores in by_kind.items()
        },
        quantized=stages.score(EVERYTHING) if EVERYTHING in stages.values else None,
        unreached=unreached,
        complete=stages.complete,
        effort=Effort(
            blocks=len(network.cutting.blocks),
            batch=network.room.together,
            arithmetic=network.arithmetic,
            agreement_db=network.runner.agreement_db,
            planned=len(reached),
            measured=sum(map(len, by_kind.values())),
            resumed=len(stages.resumed),
            first_samples=len(stages.first),
            how="exact" if settings.exact else "fast" if settings.fast else "stages",
        ),
        notes=(
            *engine.notes,
            *_more_notes(network.constant, unreached),
            *_noise_notes(engine, [score for scores in by_kind.values() for score in scores]),
            *_unscored_notes(network.cutting.wanted, [each for scores in by_kind.values() for each in scores]),
            *stages.notes,
        ),
    )


def _more_notes(constant: Sequence[str], unreached: Sequence[SwitchedSubject]) -> Iterator[Message]:
    if constant:
        names = some(constant, MOST_NAMED, quoted=True)
        yield message("sensitivity.note_constant", names=names, count=len(constant))
    if unreached:
        names = some([subject.name for subject in unreached], MOST_NAMED, quoted=True)
        yield message("sensitivity.note_unreached", count=len(unreached), names=names)


def _unscored_notes(outputs: Sequence[str], scores: Sequence[SubjectScore]) -> Iterator[Message]:
    """A warning where means leave out what could not be compared at all."""
    measured = [score.values[:, :, 0] for score in scores]
    for place, output in enumerate(outputs):
        missing = sum(int(np.isnan(values[:, place]).sum()) for values in measured)
        if missing:
            runs = sum(map(len, measured))
            yield message("sensitivity.note_unscored", output=output, missing=missing, all=runs)


def _noise_notes(engine: ExactEngine, scores: Sequence[SubjectScore]) -> Iterator[Message]:
    """A warning where scores come near what fused kernels round differently."""
    limit = engine.network.runner.agreement_db - NOISE_MARGIN_DB
    near = sum(limit < value < math.inf for score in scores for value in (pooled_sqnr_db(score),))
    if engine.network.arithmetic == "fast" and near:
        yield message("sensitivity.note_fused", count=near, limit=f"{limit:.0f}")


# As many ranks as are asked for are to be right.
_LEADING = 20
RANKING_SAMPLES = 64
"""A ranking is made on so many samples at most, evenly spread; a sweep may take thousands."""


def ranked_subjects(
    quantized: QuantizedModel,
    samples: Samples,
    kind: SubjectKind,
    *,
    max_memory: int | None = None,
    threads: int | None = None,
    progress: Progress = SILENT,
) -> tuple[tuple[SwitchedSubject, ...], Sensitivity]:
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
        what = english(
            "No output of {path} depends on anything that is quantized.", path=quantized.float_model.path
        )
        raise BadInput(what, fix=english("quantize what leads to the outputs"))
    return tuple(row.score.subject for row in found.rankings.get(kind, ())), found
