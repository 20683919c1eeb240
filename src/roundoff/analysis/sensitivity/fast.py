"""Estimating all subjects, then measuring those that lead and those that estimates cannot be trusted for."""

import math
import time
from collections.abc import Iterable, Sequence

import numpy as np

from roundoff.analysis.sensitivity.estimate import Estimator
from roundoff.analysis.sensitivity.exact import ExactEngine
from roundoff.analysis.sensitivity.journal import Journal
from roundoff.analysis.sensitivity.probes import ESTIMATED
from roundoff.analysis.sensitivity.ranking import means, summarize, worst_first
from roundoff.analysis.sensitivity.settings import SensitivitySettings
from roundoff.analysis.sensitivity.stages import Audience, Stages
from roundoff.core.sensitivity import Engine, Subject, SubjectScore
from roundoff.core.tensors import Array
from roundoff.core.wording import counted
from roundoff.errors import BadInput
from roundoff.metrics.registry import get_metric

__all__ = ["FastStages", "check_fast"]

# A change where it begins: beyond 10 dB below the signal, what follows is no longer nearly linear.
_LARGE = 0.1
# An estimate is wrong when it is off by this, and by more than chance explains.
_WRONG_DB, _WRONG_ERRORS = 3.0, 3.0
# Samples that are needed to tell what chance explains.
_ENOUGH = 4
_MOST_NAMED = 5
_SQNR = get_metric("sqnr_db")


def check_fast(settings: SensitivitySettings) -> None:
    """Refuse what there is no honest estimate of.

    Raises:
        BadInput: The settings do not go together.
    """
    if settings.exact:
        raise BadInput("An analysis is either exact or fast.", fix="leave out --exact or --fast")
    if settings.mode == "left_out":
        what = (
            "--leave-one-out has no estimate: what one of many quantizers adds is less than estimates are off by."
        )
        raise BadInput(what, fix="leave out --fast, or --leave-one-out")
    if settings.metrics and settings.metrics[0] not in ESTIMATED:
        what = f"{settings.metrics[0]!r} cannot be estimated, so --fast cannot rank by it."
        raise BadInput(what, fix=f"put one of these first: {', '.join(ESTIMATED)}; or leave out --fast")
    if settings.probes < 1:
        raise BadInput(f"{settings.probes} probes see nothing.", fix="take 1 or more")


class FastStages(Stages):
    """Estimates and measurements under way.

    Args:
        engine: What measures; beside the metrics of the settings it must give ``sqnr_db``, the last if it is not
            one of these.
        settings: With what effort.
        subjects: What to estimate.
        journal: What is known from earlier runs.
        audience: Who is told.
        estimator: What estimates.

    Attributes:
        estimated: Subjects of which `values` are estimates.
    """

    estimated: set[Subject]

    def __init__(
        self,
        engine: ExactEngine,
        settings: SensitivitySettings,
        subjects: Sequence[Subject],
        journal: Journal,
        audience: Audience,
        *,
        estimator: Estimator,
    ) -> None:
        super().__init__(engine, settings, subjects, journal, audience)
        self._estimator = estimator
        self.estimated = set()
        names = [metric.name for metric in self._metrics]
        self._sqnr_place = names.index("sqnr_db") if "sqnr_db" in names else len(names)
        self._reasons: dict[Subject, str] = {}
        self._seen: dict[Subject, dict[int, float]] = {}
        self._measured: dict[Subject, dict[int, float]] = {}
        self._local: dict[Subject, list[float]] = {}

    def run(self, indices: Sequence[int], deadline: float | None) -> None:
        """Estimate on a few of these samples, then measure the leading ones on the same, until the deadline."""
        self.first = self._first_of(indices)
        if len(self.first) < len(indices):
            used = f"{len(self.first)} of {counted(len(indices), 'sample')}"
            self.notes.append(f"estimated and measured on {used}; --first-samples takes more")
        self._estimate(deadline)
        if not self._measure_unknown(deadline):
            return
        self.leaders = self._top()
        done = self._verify(deadline)
        self._note_agreement()
        if done < len(self.leaders):
            self.notes.append(
                f"{done} of {counted(len(self.leaders), 'leading subject')} were measured before the time was over"
            )
        else:
            self.complete = True

    def score(self, subject: Subject) -> SubjectScore:
        """Means and intervals of what was estimated or measured of a subject."""
        engine: Engine = "estimate" if subject in self.estimated else self._engine.name
        return summarize(subject, *self.values[subject], self._metrics, engine=engine)

    def _estimate(self, deadline: float | None) -> None:
        progress, estimator = self._audience.progress, self._estimator
        asked = frozenset(self._subjects)
        progress.start("estimating all", len(self.first))
        try:
            for found in estimator.estimate(self.first, self._journal, deadline=deadline):
                for place, subject in enumerate(estimator.subjects):
                    if subject in estimator.unknown or subject not in asked:
                        continue
                    self.estimated.add(subject)
                    super()._add(subject, found.values[place], found.samples)
                    energies = zip(found.samples, _by_sample(found.sqnr_db[place]), strict=True)
                    self._seen.setdefault(subject, {}).update(energies)
                    self._local.setdefault(subject, []).extend(found.local[place].tolist())
                    if found.resumed:
                        self.resumed.add(subject)
                    if self._audience.on_result is not None:
                        self._audience.on_result(self.score(subject))
                progress.advance(len(found.samples))
        finally:
            progress.finish()
            self._reasons |= estimator.unknown
            for subject in tuple(self.estimated):
                reason = self._reasons.get(subject) or self._doubt(subject)
                if reason:
                    self._reasons[subject] = reason
                    self._forget(subject)
        used = {index for subject in self.estimated for index in self.values[subject][0]}
        if used and len(used) < len(self.first):
            self.first = tuple(sorted(used))
            self.notes.append(f"to stay within the time, estimates are from {counted(len(used), 'sample')}")

    def _measure_unknown(self, deadline: float | None) -> bool:
        """Measure what could not be estimated, on the same samples; gives whether there was time to."""
        unknown = [subject for subject in self._subjects if subject in self._reasons]
        if not unknown:
            return True
        self._note_reasons({subject: self._reasons[subject] for subject in unknown})
        self._engine.load(self.first, unknown, progress=self._audience.progress)
        done = self._measure(unknown, "measuring what cannot be estimated", deadline)
        if done < len(unknown):
            self.notes.append(f"{done} of them were measured before the time was over")
        return done == len(unknown)

    def _doubt(self, subject: Subject) -> str:
        """Why the estimate of a subject is not to be trusted; empty when it is."""
        _, values = self.values[subject]
        if np.isnan(values[..., 0]).all():
            return "gradients are not finite"
        local = self._local[subject]
        if max(local) > 0 and all(math.isinf(value) for value in self._seen[subject].values()):
            return "no gradient comes back, though they change something"
        if not float(np.mean(local)) < _LARGE:
            return "their errors are too large where they begin (10 dB or less)"
        return ""

    def _forget(self, subject: Subject) -> None:
        self.estimated.discard(subject)
        for held in (self.values, self._seen, self._local):
            held.pop(subject, None)

    def _top(self) -> tuple[Subject, ...]:
        metric, top = self._metrics[0], self._settings.top
        return self._in_order(
            score.subject
            for scores in self._by_first_metric()
            for score in worst_first(scores, metric, mode="alone")[:top]
        )

    def _verify(self, deadline: float | None) -> int:
        """Measure the leading subjects on the samples of their estimates; gives how many were."""
        if deadline is not None and time.monotonic() > deadline:
            return 0
        before = {subject: (self.values.pop(subject), subject in self.estimated) for subject in self.leaders}
        try:
            self._engine.load(self.first, self.leaders, progress=self._audience.progress)
            return self._measure(self.leaders, "measuring the leading ones", deadline)
        finally:
            for subject, (values, estimated) in before.items():
                if subject not in self.values:
                    self.values[subject] = values
                    self.estimated |= {subject} if estimated else set()

    def _add(self, subject: Subject, values: Array, samples: tuple[int, ...] | None = None) -> None:
        taken = self._engine.loaded if samples is None else samples
        energies = zip(taken, _by_sample(values[..., self._sqnr_place]), strict=True)
        self._measured.setdefault(subject, {}).update(energies)
        self.estimated.discard(subject)
        super()._add(subject, values[..., : len(self._metrics)], taken)

    def _note_reasons(self, reasons: dict[Subject, str]) -> None:
        for reason in dict.fromkeys(reasons.values()):
            names = list(dict.fromkeys(subject.name for subject, own in reasons.items() if own == reason))
            self.notes.append(f"measured, not estimated, as {reason}: {_few(names)}")

    def _note_agreement(self) -> None:
        """How estimates agree with what was measured of the same subjects on the same samples."""
        missing = [metric.name for metric in self._metrics if metric.name not in self._estimator.estimated]
        if missing and self.estimated:
            self.notes.append(f"not estimated, so only known of what was measured: {', '.join(missing)}")
        offs: dict[str, float] = {}
        wrong: dict[str, float] = {}
        for subject in self.leaders:
            if subject in self.estimated or subject not in self._seen:
                continue
            pairs = [
                (self._seen[subject][index], value)
                for index, value in self._measured[subject].items()
                if index in self._seen[subject]
            ]
            differences = np.array([left - right for left, right in pairs if math.isfinite(left - right)])
            if not differences.size:
                continue
            off = float(differences.mean())
            enough = differences.size >= _ENOUGH
            error = float(differences.std(ddof=1)) / math.sqrt(differences.size) if enough else math.inf
            offs[subject.name] = off
            if abs(off) > max(_WRONG_DB, _WRONG_ERRORS * error):
                wrong[subject.name] = off
        if offs:
            typical, largest = float(np.median(np.abs(list(offs.values())))), max(offs.values(), key=abs)
            self.notes.append(
                f"{counted(len(offs), 'estimate')} checked by measuring: off by {typical:.1f} dB in the middle, "
                f"{abs(largest):.1f} dB at most"
            )
        if wrong:
            self.notes.append(
                f"estimates are wrong for {_few(sorted(wrong, key=lambda name: -abs(wrong[name])))}: "
                "errors are too large for gradients, and other ranks may be wrong too; leave out --fast"
            )


def _by_sample(sqnr_db: Array) -> list[float]:
    """The mean over the outputs that are not perfect, in each sample; infinite where all are."""
    return [float(value) for value in means(sqnr_db[..., np.newaxis], [_SQNR], axis=1)[:, 0]]


def _few(names: Iterable[str]) -> str:
    listed = list(names)
    more = f" and {len(listed) - _MOST_NAMED} more" if len(listed) > _MOST_NAMED else ""
    return ", ".join(listed[:_MOST_NAMED]) + more
