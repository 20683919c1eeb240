"""The search for culprits, stage by stage, each put right before the next is looked for."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from roundoff.core.coverage import Doubt
from roundoff.core.quantizers import Quantizer
from roundoff.core.tensors import Array
from roundoff.diagnosis.culprits import (
    Accused,
    Record,
    beside_cured,
    explained,
    find_few,
    find_needed,
    find_outstanding,
    grouped,
    in_silence,
    merged,
    takes_most,
    together,
    with_control,
)
from roundoff.diagnosis.ideal import Ideal, IdealOption, unlike_values
from roundoff.diagnosis.investigation import Investigation, TaskMetric
from roundoff.diagnosis.loss import NEGLIGIBLE, Loss
from roundoff.diagnosis.registry import ask, find_cause
from roundoff.diagnosis.result import Finding, Measure
from roundoff.diagnosis.subject import Case, Fixes, Suspect
from roundoff.graph.insertion import switch_on
from roundoff.measure.verdicts import PairedChange, guesses, paired_change
from roundoff.messages.message import Message, message

# So many places are few, or the root of all where that is more; what needs more of them to be put right has no
# culprits.
_FEW = 4
# Worse than its quantizers could be by this much, a network has a fault in the numbers of its quantizers ...
_FAULT_DB = 3.0
# ... and by this much, in what the hardware is asked to do: scales per channel help any network a bit.
_DESIGN_DB = 6.0
# Causes that other hardware would take away.
_DESIGN = frozenset({"mixed-range", "outlier-channel", "residual-outliers", "softmax-range", "norm-precision"})
# Causes that are the same in every layer of a transformer and hide each other; each makes a part of the loss when
# without it that is lower by so much.
_JOINT, _A_PART_DB, _HIDDEN = ("attention-mask", "norm-precision", "softmax-range"), 1.0, 0.5
# The same, asked where no few places make the loss.
_STREAM = "residual-outliers"
# As often places are looked for that need more than they have.
_ROUNDS = 3
# Outputs this good need no better hardware; a cosine of 0.99, with room for chance between samples.
_GOOD_DB = 20.0
# The proof that a loss has no culprits takes so many runs.
_PROOF_RUNS = 10
# Ranges all over the network cost so much that are wider than any sample may need: more than a third of the error.
_ROOMY_DB = 2.0
# So many ranges that do not fit may have one reason.
_SEVERAL_RANGES = 2
# Outputs of 60 dB are as good as float.
_AS_FLOAT = 1e-6


# A metric is restored when it is lower by less than this part of its value, or by a part of what it lost that may
# be chance.
_TOLERATED_DROP = 0.01
_REST_BY_CHANCE = 0.5
_UNCHANGED = PairedChange(0.0)


@dataclass(frozen=True, slots=True)
class Scores:
    """The user's metric.

    Attributes:
        name: What is measured.
        higher_is_better: Which way it is better.
        in_float: Of the float network.
        quantized: Of the quantized one.
        chance: What guessing scores; None where that is not known.
        samples: On how many samples.
        change: The loss with its interval, over the samples that both networks saw.
        doubts: What speaks against the labels or the evaluator.
        values: Of the quantized network, for each sample or one for all.
        exact: Of the float network, likewise.
    """

    name: Message
    higher_is_better: bool
    in_float: float
    quantized: float
    chance: float | None = None
    samples: int = 0
    change: PairedChange = _UNCHANGED
    doubts: tuple[Doubt, ...] = ()
    values: tuple[float, ...] = ()
    exact: tuple[float, ...] = ()

    @property
    def trusted(self) -> bool:
        """Whether the evaluator measures the network: it says the same twice, and has run it."""
        return not any(each.kind in ("unrepeatable", "blind") for each in self.doubts)

    @property
    def mislabelled(self) -> Doubt | None:
        """That labels are no class of the network; None where all are."""
        return next((each for each in self.doubts if each.kind == "labels"), None)

    @property
    def tolerated(self) -> float:
        """How much of it may be lost."""
        return _TOLERATED_DROP * max(abs(self.in_float), abs(self.quantized))

    @property
    def fine(self) -> bool:
        """Whether these samples show that no more than is tolerated is lost."""
        return self.trusted and self.change.kept(self.tolerated)

    @property
    def drops(self) -> bool:
        """Whether it is worse than is tolerated, beyond chance."""
        return self.trusted and self.change.lost(self.tolerated)

    @property
    def guesses(self) -> bool:
        """Whether the float network itself is hardly better than always naming the commonest class."""
        return self.chance is not None and guesses(self.in_float, self.chance)


@dataclass(slots=True, eq=False)
class TaskProof:
    """The user's metric as part of proofs.

    Attributes:
        metric: The metric.
        exact: Its values of the float network.
        broken: Its values of the quantized one.
    """

    metric: TaskMetric
    exact: Array
    broken: Array
    _known: dict[frozenset[tuple[str, int]], Array] = field(default_factory=dict)
    _kept: list[Quantizer] = field(default_factory=list)

    def values(self, case: Case, fixes: Fixes | None = None) -> Array:
        """Of the network with some more put right."""
        quantizers = case.quantizers(fixes)
        key = frozenset((each.name, id(each)) for each in quantizers)
        if key not in self._known:
            self._kept += quantizers
            self._known[key] = self.metric.values(switch_on(case.runner.model, quantizers))
        return self._known[key]

    def restored(self, case: Case, fixes: Fixes | None = None) -> bool:
        """Whether it is then about what it is in float."""
        now, ours = self.values(case, fixes), float(self.exact.mean())
        drop, lost = (self.metric.drop(ours, float(each.mean())) for each in (now, self.broken))
        if drop <= _TOLERATED_DROP * max(abs(ours), abs(float(now.mean()))):
            return True
        change = paired_change(self.exact, now, higher_is_better=self.metric.higher_is_better)
        return drop <= _REST_BY_CHANCE * lost and not change.significant

    def measured(self, before: Case, after: Case) -> Measure:
        """What it is in one network, and in another."""
        old, new = (float(self.values(each).mean()) for each in (before, after))
        metric, better = self.metric, self.metric.higher_is_better
        return Measure(metric.name, "", old, new, higher_is_better=better, samples=metric.samples)


@dataclass(slots=True)
class CulpritStages:
    """Looks for culprits.

    Attributes:
        notebook: What was asked, and how long it may take.
        record: Where findings go.
        task: The user's metric, where it drops; None where it does not, or there is none.
        lossy: Whether the judge says so of the network as it is.
        distributed: Whether the loss has no few culprits.
    """

    notebook: Investigation
    record: Record
    task: TaskProof | None = None
    lossy: bool = False
    distributed: bool = False

    def look(self, case: Case, better: Sequence[Ideal], *, fine: bool) -> Case:
        """Find faults stage by stage, each put right before the next is looked for."""
        if self._late(message("diagnosis.skip_better")):
            return case
        for cause in _JOINT if case.facts.parts.is_transformer else ():
            case = self._joint(case, cause)
        case = self._settings(case, better)
        if self._late(message("diagnosis.skip_scales")):
            return case
        if self._asks_for_design(case, better, fine=fine):
            mended = self._accuse(case, _options(better, settings=False), design=True)
            # What the hardware is asked to do can hide numbers that are wrong.
            case = self._settings(mended, better) if mended.mended.keys() - case.mended.keys() else mended
        for _ in range(_ROUNDS):
            if self._good(case, fine=fine):
                break
            case, more = self._inherent(case)
            if not more:
                break
        return self._outstanding(case)[0] if self._proven else case

    @property
    def _proven(self) -> bool:
        """Whether anybody was proven to be to blame."""
        return any(each.proven for each in self.record.findings)

    def _outstanding(self, case: Case) -> tuple[Case, bool]:
        """Places of a deep network that are far worse than all others, each too small to be seen beside these."""
        known, stop = self.record.tensors, self.notebook.out_of_time
        suspects = [each for each in _unmended(case) if each.tensor not in known]
        accused = find_outstanding(case, suspects, beside=self._proven, out_of_time=stop)
        return self._told(case, accused) if accused else (case, False)

    def _told(self, case: Case, accused: Sequence[Accused]) -> tuple[Case, bool]:
        """The network with all accused put right, and whether any of them is more than chance."""
        stop = self.notebook.out_of_time
        reasons, accused = explained(case, accused, out_of_time=stop)
        told = grouped(case, reasons, accused, out_of_time=stop)
        return self._recorded(case, told, accused), any(not _by_chance(each) for each, _ in told)

    def _joint(self, case: Case, cause: str) -> Case:
        """A cause that is the same in every layer of a transformer, with all its places put right as one.

        Beside them nothing else shows, and beside others of their kind they do not: where alone they seem to cost
        nothing, they are looked at in the network with the rest in float.
        """
        kind = find_cause(cause, "quantization")
        found = None if self.notebook.out_of_time() else kind.sought.places(case)
        if found is None:
            return case
        suspect, fixes = found
        others = {name: None for name in case.facts.quantizers if name not in fixes}
        for beside in (case, case.mend(others)):
            # With nothing else quantized everything shows: it has to be a good part of what is lost.
            if _excess_db(beside, fixes) < _A_PART_DB or beside.loss().value < _HIDDEN * case.loss().value:
                continue
            asked = ask(kind, beside, suspect, nodes=suspect.nodes, tensors=suspect.tensors)
            if asked is None or not asked[0].proven:
                continue
            told = with_control(asked[0], beside, fixes, out_of_time=self.notebook.out_of_time)
            if told.proven:
                self.record.add(told if beside is case else in_silence(told), fixes)
                return case.mend(fixes)
        return case

    def _good(self, case: Case, *, fine: bool) -> bool:
        """Whether nothing more is to be looked for; where the user's metric drops, it decides."""
        if self.task is not None:
            return self.task.restored(case)
        # What the judge calls lossy is looked into, though a mean over samples may just keep its threshold.
        return fine or (case.loss(more=True).agrees and not (self.lossy and not case.mended))

    def _asks_for_design(self, case: Case, better: Sequence[Ideal], *, fine: bool) -> bool:
        """Whether scales that the hardware may not have would help a network that needs help."""
        now = case.loss(more=True)
        if fine or (self.task is None and now.sqnr_db >= _GOOD_DB):
            return False
        bad = _FAULT_DB if not now.agrees else _DESIGN_DB
        return _excess_db(case, best_fixes(better, settings=False)) >= bad and (
            self.task is None or not self.task.restored(case)
        )

    def _settings(self, case: Case, better: Sequence[Ideal]) -> Case:
        """Numbers of quantizers that are wrong: many of them by samples unlike those of calibration, then each."""
        wanted = _options(better, settings=True)
        roomy = roomy_loss(case)
        many = roomy is not None and roomy.faulty
        if many or _excess_db(case, _open_fixes(case, wanted)) >= _FAULT_DB:
            case = self._samples(case, better, many=many)
        if _excess_db(case, _open_fixes(case, wanted)) >= _FAULT_DB:
            case = self._accuse(case, wanted)
        return case

    def _late(self, what: Message) -> bool:
        """Whether there is no time for something, which is noted."""
        late = self.notebook.out_of_time()
        if late:
            self.notebook.skip(what)
        return late

    def _accuse(
        self, case: Case, candidates: Sequence[tuple[Suspect, IdealOption]], *, design: bool = False
    ) -> Case:
        """Find who must be put right, and why; with all of them right in the end."""
        stop = self.notebook.out_of_time
        fresh = _open(case, candidates)
        damages = {suspect.name: case.facts.damage(suspect) for suspect, _ in fresh}
        blatant = {
            suspect.name
            for suspect, option in fresh
            if (damage := damages[suspect.name]) is not None and option.is_blatant(damage.ratio)
        }
        fixed = [(suspect, option.fixes) for suspect, option in fresh]
        accused = find_needed(case, fixed, blatant=blatant, out_of_time=stop)
        kinds = {suspect.name: (suspect.kind, option.kind) for suspect, option in fresh}
        for kind in dict.fromkeys(kinds[each.suspect.name] for each in accused):
            alike = [each for each in accused if kinds[each.suspect.name] == kind]
            if len(alike) > _FEW:
                # Only those that are named are put right: others like them would take a share that is not theirs.
                fixes = merged(each.fixes for each in alike)
                others = merged(each.fixes for each in accused if each not in alike)
                found = self._systematic(case.mend(others), alike)
                if found is not None:
                    self.record.add(beside_cured(found) if others else found, fixes)
                    case = case.mend(fixes)
                    accused = [each for each in accused if each not in alike]
        if stop():
            self.notebook.skip(message("diagnosis.skip_all_better"))
        reasons, accused = explained(case, accused, out_of_time=stop)
        if design:
            # More bits help everywhere; whether few places need them is asked later.
            reasons = [each for each in reasons if each.cause in _DESIGN or _asks_for_a_range(each)]
            blamed = {name for each in reasons for name in each.tensors}
            accused = [each for each in accused if each.suspect.tensor in blamed]
        return self._recorded(case, grouped(case, reasons, accused, out_of_time=stop), accused)

    def _recorded(self, case: Case, told: Sequence[tuple[Finding, Fixes]], accused: Sequence[Accused]) -> Case:
        """Take in findings; the network with all accused mended but those of whom chance is not ruled out."""
        findings = [finding for finding, _ in told]
        chance = {name for each in findings if _by_chance(each) for name in each.tensors}
        chance -= {name for each in findings if not _by_chance(each) for name in each.tensors}
        mended = case.mend(merged(each.fixes for each in accused if each.suspect.tensor not in chance))
        for finding, fixes in told:
            self.record.add(finding, fixes)
        return mended

    def _samples(self, case: Case, better: Sequence[Ideal], *, many: bool) -> Case:
        """Where many ranges do not fit: samples unlike those of calibration, or processed otherwise.

        This is seen without a run, and so tried before any place is accused; with all else at its best, too, which
        could hide it. Named, recalibrated for the proof and put right afterwards are the same places.
        """
        from roundoff.diagnosis.causes.inputs import cut_off, misfit

        ranges = unlike_values(case)
        # One range that is wrong, and what has it from there, is no matter of samples.
        if sum(not case.mended.keys() & each.quantizers for each in ranges) < _SEVERAL_RANGES:
            return case
        many = many or misfit(case)
        cut = cut_off(case) if many else {}
        settings = _open(case, _options(better, settings=True))
        # Ranges that are too wide, narrowed to what half of the samples reach, may cut off the other half.
        for unfit in (cut | ranges, cut):
            places = {each: fixes for each, fixes in unfit.items() if not case.mended.keys() & each.quantizers}
            others = merged(option.fixes for suspect, option in settings if suspect not in places)
            found = self._calibration(case, tuple(places), many=many) if places else None
            if found is None and places and others:
                cured = self._calibration(case.mend(others), tuple(places), many=many)
                found = None if cured is None else beside_cured(cured)
            if found is not None:
                fixes = merged(places.values())
                self.record.add(found, fixes)
                return case.mend(fixes)
        return case

    def _systematic(self, case: Case, alike: Sequence[Accused]) -> Finding | None:
        """What is wrong in the same way at many places, as one finding that is measured at all of them."""
        first, _ = explained(case, alike, out_of_time=self.notebook.out_of_time, most=1)
        if not first or not first[0].proven:
            return None
        found = replace(together(case, first[0], alike), control=None)
        fixes = merged(each.fixes for each in alike)
        found = with_control(found, case, fixes, out_of_time=self.notebook.out_of_time)
        return found if found.proven and found.measures[0].improved else None

    def _calibration(self, case: Case, places: Sequence[Suspect], *, many: bool) -> Finding | None:
        """Whether ranges are wrong since the model was calibrated on others' inputs, or many on other samples."""
        quantizers, tensors, nodes = (
            tuple(dict.fromkeys(name for each in places for name in names(each) if name))
            for names in (lambda each: each.quantizers, lambda each: each.tensors, lambda each: (each.node,))
        )
        suspect = Suspect("", "activation", quantizers, "", tensors, "", ())
        # Of inputs that are made otherwise the cause itself says which they are.
        blamed = {"preprocessing": ((), ())} | ({"calibration-coverage": (nodes, tensors)} if many else {})
        for cause, (its_nodes, its_tensors) in blamed.items():
            kind = find_cause(cause, "quantization")
            asked = ask(kind, case, suspect, nodes=its_nodes, tensors=its_tensors)
            if asked is not None and asked[0].proven:
                return replace(asked[0], share=1.0)
        return None

    def artefacts(self, case: Case) -> None:
        """Tensors that look wrong in every table, and of which nothing comes."""
        kind = find_cause("metric-artefact", "quantization")
        known = self.record.tensors
        for suspect in case.facts.suspects:
            if suspect.tensor in known or self.notebook.out_of_time():
                continue
            asked = ask(kind, case, suspect, nodes=suspect.nodes, tensors=suspect.tensors)
            if asked is not None and asked[0].proven:
                self.record.add(asked[0], {})

    def _inherent(self, case: Case) -> tuple[Case, bool]:
        """What is lost although every quantizer is as good as its bits allow; whether to look on."""
        stop = self.notebook.out_of_time
        if stop():
            self.notebook.skip(message("diagnosis.skip_places"))
            return case, False
        # What is seen without a run is tried first.
        case, found = self._outstanding(case)
        if found:
            return case, True
        suspects = _unmended(case)
        limit = max(_FEW, math.isqrt(len(suspects)))
        restores = None if self.task is None else partial(self.task.restored, case)
        accused = find_few(case, suspects, limit=limit, out_of_time=stop, restores=restores)
        if accused is None:
            self.notebook.skip(message("diagnosis.skip_places"))
            return case, False
        if accused:
            return self._told(case, accused)
        mended = self._stream(case)
        if mended is not case:
            return mended, True
        self.distributed = True
        if not self._proven:
            self._add_up(case)
        return case, False

    def _stream(self, case: Case) -> Case:
        """The residual stream with a few large values in one scale, wherever it is read: each alone is nothing.

        More bits help any network a bit: without them most of what is lost must be gone.
        """
        parts = case.facts.parts
        found = find_cause(_STREAM, "quantization").sought.places(case) if parts.is_transformer else None
        if found is None or not all(
            takes_most(case.loss(more=more), case.loss(found[1], more=more)) for more in (False, True)
        ):
            return case
        return self._joint(case, _STREAM)

    def _add_up(self, case: Case) -> None:
        """The proof that a loss has no culprits."""
        if self.notebook.out_of_time(_PROOF_RUNS * case.runner.seconds):
            self.notebook.skip(message("diagnosis.skip_adds_up"))
            return
        whole = Suspect("", "activation", (), "", (), "", ())
        asked = ask(find_cause("accumulated-error", "quantization"), case, whole, nodes=(), tensors=())
        if asked is not None:
            self.record.add(replace(asked[0], share=1.0), dict.fromkeys(case.facts.quantizers))


@dataclass(frozen=True, slots=True)
class RoomyLoss:
    """What is lost by ranges all over the network that leave most of their codes unused.

    Attributes:
        count: How many there are.
        times: How many times as wide as its values the one in the middle of all ranges is.
        after: What is lost with ranges of these samples.
        faulty: Whether that is a fault: wider than samples that were not seen may need, and at a cost.
        doubtful: Whether it may be one: at a cost, wider than such samples were seen to need.
    """

    count: int
    times: float
    after: Loss
    faulty: bool
    doubtful: bool


def roomy_loss(case: Case) -> RoomyLoss | None:
    """What ranges all over the network cost that are too wide; None where they are not, or cost nothing."""
    from roundoff.diagnosis.causes.inputs import roomy_ranges

    found = roomy_ranges(case)
    if found is None:
        return None
    fixes, safe = (
        {name: each for name, each in ranges.items() if name not in case.mended}
        for ranges in (found.fixes, found.safe)
    )
    cost = _excess_db(case, fixes, negligible=_AS_FLOAT)
    if cost < _A_PART_DB:
        return None
    faulty = found.faulty and _excess_db(case, safe, negligible=_AS_FLOAT) >= _ROOMY_DB
    doubtful = faulty or (found.doubtful and cost >= _FAULT_DB)
    return RoomyLoss(found.count, found.times, case.loss(fixes, more=True), faulty, doubtful)


def _unmended(case: Case) -> list[Suspect]:
    """Suspects of whom nothing is put right."""
    return [each for each in case.facts.suspects if not case.mended.keys() & each.quantizers]


def _by_chance(finding: Finding) -> bool:
    """Whether a proof did not stand beside its control."""
    return finding.control is not None and not finding.control.holds


def _asks_for_a_range(finding: Finding) -> bool:
    """Whether a range would do that the kernel may not have."""
    return finding.remedy is not None and any(each.kind == "range" for each in finding.remedy.changes)


def _options(better: Sequence[Ideal], *, settings: bool) -> list[tuple[Suspect, IdealOption]]:
    found = [(each.suspect, each.best(settings=settings)) for each in better]
    return [(suspect, option) for suspect, option in found if option is not None]


def _open(case: Case, candidates: Sequence[tuple[Suspect, IdealOption]]) -> list[tuple[Suspect, IdealOption]]:
    """Those of whom nothing is mended yet."""
    return [(suspect, option) for suspect, option in candidates if not case.mended.keys() & suspect.quantizers]


def _open_fixes(case: Case, candidates: Sequence[tuple[Suspect, IdealOption]]) -> Fixes:
    return merged(option.fixes for _, option in _open(case, candidates))


def best_fixes(better: Sequence[Ideal], *, settings: bool) -> Fixes:
    """All quantizers at their best; with the hardware as it is, or as it should be."""
    return merged(option.fixes for _, option in _options(better, settings=settings))


def _excess_db(case: Case, fixes: Fixes, *, negligible: float = NEGLIGIBLE) -> float:
    """By how much a network is worse than it could be, on few samples and on more: on few, chance may say so."""
    both = ((case.loss(more=more), case.loss(fixes, more=more)) for more in (False, True))
    return min(ours.excess_db(theirs, negligible) for ours, theirs in both)
