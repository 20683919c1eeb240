"""Measuring in stages: all subjects on few samples, the leading ones on all, as far as time allows."""

import time
from collections.abc import Callable, Sequence
from contextlib import closing

import numpy as np

from roundoff.analysis.sensitivity.exact import ExactEngine
from roundoff.analysis.sensitivity.journal import Journal
from roundoff.analysis.sensitivity.ranking import leading, summarize
from roundoff.analysis.sensitivity.settings import SensitivitySettings
from roundoff.core.progress import Progress
from roundoff.core.sensitivity import Subject, SubjectKind, SubjectScore
from roundoff.core.tensors import Array
from roundoff.core.wording import counted
from roundoff.metrics.registry import Metric, get_metric
from roundoff.quantize.agreement import spread

__all__ = ["EVERYTHING", "Audience", "Stages"]

EVERYTHING = Subject("everything", "group", ())
"""Stands for all quantizers together."""

# Of the time that is left, the first stage may take this share; the rest is for the leading subjects.
_FIRST_SHARE = 0.6

_Values = tuple[tuple[int, ...], Array]


class Audience:
    """Who is told of what is done.

    Args:
        progress: Told how far it is.
        on_result: Called with each subject as soon as it is measured.
    """

    def __init__(self, progress: Progress, on_result: Callable[[SubjectScore], None] | None) -> None:
        self.progress = progress
        self.on_result = on_result


class Stages:
    """Measurements under way.

    Args:
        engine: What measures.
        settings: With what effort.
        subjects: What to measure.
        journal: What is known from earlier runs, and where the new is written.
        audience: Who is told.

    Attributes:
        values: What was measured of each subject: indices of samples, and scores.
        leaders: Subjects that lead after the first stage.
        first: Samples of the first stage.
        resumed: Subjects that were found in the journal.
        complete: Whether everything was done.
        notes: What the reader should know.
    """

    values: dict[Subject, _Values]
    leaders: tuple[Subject, ...]
    first: tuple[int, ...]
    resumed: set[Subject]
    complete: bool
    notes: list[str]

    def __init__(
        self,
        engine: ExactEngine,
        settings: SensitivitySettings,
        subjects: Sequence[Subject],
        journal: Journal,
        audience: Audience,
    ) -> None:
        self._engine, self._settings, self._subjects = engine, settings, tuple(subjects)
        self._journal, self._audience = journal, audience
        self._metrics: tuple[Metric, ...] = tuple(get_metric(name) for name in dict.fromkeys(settings.metrics))
        self.values, self.leaders, self.first = {}, (), ()
        self.resumed, self.complete, self.notes = set(), False, []
        self._twins: dict[frozenset[str], list[Subject]] = {}
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
            self.notes.append(f"{done} of {len(self._subjects)} subjects were measured before the time was over")
            return
        taken = frozenset(self.first)
        rest = tuple(index for index in indices if index not in taken)
        if rest:
            self.leaders = self._leading()
            self._engine.load(rest, self.leaders, progress=self._audience.progress)
            done = self._measure(self.leaders, "measuring the leading ones", deadline)
            if done < len(self.leaders):
                self.notes.append(
                    f"{done} of {len(self.leaders)} leading subjects were measured on all samples "
                    "before the time was over"
                )
                return
        self.complete = True

    def score(self, subject: Subject) -> SubjectScore:
        """Means and intervals of what was measured of a subject."""
        return summarize(subject, *self.values[subject], self._metrics)

    def _load(self, subjects: Sequence[Subject], samples: tuple[int, ...], deadline: float | None) -> None:
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
            self.notes.append(
                f"to stay within the time, all subjects come on {counted(len(self.first), 'sample')} first"
            )
            self._engine.load(self.first, subjects, progress=self._audience.progress)

    def _measure(self, subjects: Sequence[Subject], title: str, deadline: float | None) -> int:
        """Measure subjects on the samples that are loaded; gives how many were."""
        engine, progress = self._engine, self._audience.progress
        asked = frozenset(subjects)
        # Those that switch the same quantizers, such as a node with one of them and that one, are measured once.
        different = list({frozenset(subject.quantizers): subject for subject in reversed(subjects)}.values())[::-1]
        if self._settings.mode == "left_out":
            self._add(EVERYTHING, engine.base_scores())
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
            with closing(engine.measure(self._ordered(waiting, deadline), deadline=deadline)) as found:
                for subject, values in found:
                    if self._journal.used:
                        self._journal.add(engine.key(subject), values)
                    done += self._take(subject, values, asked)
        finally:
            progress.finish()
        return done

    def _ordered(self, subjects: list[Subject], deadline: float | None) -> list[Subject]:
        """Should time run out, what is done is not just the beginning of the network."""
        if deadline is None:
            return subjects
        order = np.random.default_rng(self._settings.seed).permutation(len(subjects))
        return [subjects[at] for at in order]

    def _take(self, subject: Subject, values: Array, asked: frozenset[Subject], *, resumed: bool = False) -> int:
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

    def _add(self, subject: Subject, values: Array) -> None:
        """Join scores, of the samples that are loaded, with those of others, in the order of the samples."""
        samples = self._engine.loaded
        if subject in self.values:
            before, earlier = self.values[subject]
            samples, values = (*before, *samples), np.concatenate([earlier, values])
        order = sorted(range(len(samples)), key=samples.__getitem__)
        self.values[subject] = tuple(samples[at] for at in order), values[order]

    def _leading(self) -> tuple[Subject, ...]:
        """Those that may be among the first of their kind by what ranks."""
        settings, ranking = self._settings, self._metrics[:1]
        kinds: dict[SubjectKind, list[SubjectScore]] = {}
        for subject in self._subjects:
            samples, values = self.values[subject]
            kinds.setdefault(subject.kind, []).append(summarize(subject, samples, values[..., :1], ranking))
        chosen = frozenset(
            subject
            for scores in kinds.values()
            for subject in leading(scores, ranking, mode=settings.mode, top=settings.top)
        )
        return tuple(subject for subject in self._subjects if subject in chosen)
