"""Why a quantized network loses accuracy: what its arithmetic should cost, what it costs, who makes the rest."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from roundoff.core.findings import Diagnosis, Finding
from roundoff.diagnosis import causes as _causes
from roundoff.diagnosis.asked import asked_bits
from roundoff.diagnosis.case import Case, Fixes, open_case
from roundoff.diagnosis.causes.calibration_coverage import misfit
from roundoff.diagnosis.culprits import explained, grouped, together
from roundoff.diagnosis.file_check import check_file
from roundoff.diagnosis.ideal import Ideal, Option, ideals
from roundoff.diagnosis.integers import accumulator_finding
from roundoff.diagnosis.investigation import DiagnoseSettings, Investigation
from roundoff.diagnosis.lint import lint, remarks_text
from roundoff.diagnosis.loss import Loss
from roundoff.diagnosis.registry import ask, find_cause
from roundoff.diagnosis.searching import Accused, find_few, find_needed, merged
from roundoff.diagnosis.suspects import Suspect
from roundoff.diagnosis.verdict import Evidence, Scores, conclude
from roundoff.errors import BadInput
from roundoff.graph.insertion import switch_on
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.runtime.feeds import Samples

__all__ = ["DiagnoseSettings", "diagnose_quantization"]

_LOADED = _causes
# So many places are few; what needs more of them to be put right has no culprits.
_FEW = 4
# Worse than its quantizers could be by this much, a network has a fault in the numbers of its quantizers ...
_FAULT_DB = 3.0
# ... and by this much, in what the hardware is asked to do: scales per channel help any network a bit.
_DESIGN_DB = 6.0
# Causes that other hardware would take away.
_DESIGN = frozenset({"mixed-range", "outlier-channel"})
_NAMED = 3
# As often places are looked for that need more than they have.
_ROUNDS = 3
# Outputs this good need no better hardware; a cosine of 0.99, with room for chance between samples.
_GOOD_DB = 20.0
# A metric that drops by less than this part of its value is as good.
_TOLERATED_DROP = 0.01


def diagnose_quantization(
    quantized: QuantizedModel, samples: Samples, settings: DiagnoseSettings | None = None
) -> Diagnosis:
    """Find out whether, where and why a quantized network loses accuracy.

    Args:
        quantized: The float model and its quantizers.
        samples: What both are fed.
        settings: What else is known, and how long it may take.

    Raises:
        BadInput: Nothing is quantized, or samples do not fit the model.
        ModelFailed: The model cannot be run.
    """
    settings = settings or DiagnoseSettings()
    if not quantized.quantizers:
        raise BadInput(
            f"{quantized.float_model.path} has no quantizers, so there is nothing to diagnose.",
            fix="give a quantized model with --quantized, or a target with --target",
        )
    notebook = Investigation(settings)
    return _Diagnosing(quantized, samples, notebook).run()


@dataclass(slots=True)
class _Diagnosing:
    quantized: QuantizedModel
    samples: Samples
    notebook: Investigation
    findings: list[Finding] = field(default_factory=list)
    distributed: bool = False
    worse: Loss | None = None
    _drops: list[float] = field(default_factory=list)

    def run(self) -> Diagnosis:
        settings = self.notebook.settings
        with self.notebook.check("numbers in the file") as check:
            remarks = lint(self.quantized, settings.arithmetic)
            check.result, check.ok = remarks_text(remarks), not remarks
        case = open_case(
            self.quantized,
            self.samples,
            arithmetic=settings.arithmetic,
            asked=asked_bits(self.quantized, settings.plan),
            threads=settings.threads,
            max_memory=settings.max_memory,
            progress=settings.progress,
        )
        self._asked(case)
        self._file(case)
        scores = self._scores()
        with self.notebook.check("outputs") as check:
            check.result = _outputs_text(case.loss(more=True))
            check.ok = case.loss(more=True).agrees
        better = ideals(case)
        settings.progress.start("looking for causes", len(case.facts.suspects))
        try:
            self._sums(case, [each.node for each in remarks if each.kind == "accumulator"])
            mended = self._look(case, better, fine=scores is not None and scores.fine)
            self._artefacts(mended)
        finally:
            settings.progress.finish()
        evidence = Evidence(
            case=case,
            mended=mended,
            findings=self._shared(),
            expected=mended.loss(_fixes(better, settings=True), more=True),
            scores=scores,
            distributed=self.distributed,
            worse=self.worse,
        )
        return conclude(evidence, self.notebook)

    def _add(self, findings: Sequence[Finding], before: Case, after: Case) -> None:
        """Take in the findings of a stage, whose shares are those of what the stage took away."""
        drop = max(0.0, before.loss().value - after.loss().value)
        self.findings += findings
        self._drops += [drop] * len(findings)

    def _shared(self) -> tuple[Finding, ...]:
        """All findings with their shares of all that was taken away."""
        weights = [each.share * drop for each, drop in zip(self.findings, self._drops, strict=True)]
        total = sum(weights) or 1.0
        return tuple(
            replace(each, share=weight / total) for each, weight in zip(self.findings, weights, strict=True)
        )

    def _asked(self, case: Case) -> None:
        """Whether what was asked for is what the model has."""
        if self.notebook.settings.plan is None:
            return
        with self.notebook.check("precision asked for") as check:
            names = [case.facts.quantizers[name].tensor for name in case.facts.asked]
            check.ok = not names
            check.result = "the model has it" if not names else f"not granted at {', '.join(names[:_NAMED])}"

    def _file(self, case: Case) -> None:
        """Whether the file computes what its quantizers say."""
        given = self.notebook.settings.given
        if given is None:
            return
        with self.notebook.check("the file itself") as check:
            check.result, found, self.worse = check_file(case, given)
            check.ok = self.worse is None
            if found is not None:
                self._add([found], case, case)
                self._drops[-1] = found.measures[0].after - found.measures[0].before

    def _sums(self, case: Case, nodes: Sequence[str]) -> None:
        """Whether sums that may not fit their register do not."""
        if not nodes:
            return
        with self.notebook.check("sums of products") as check:
            found = accumulator_finding(case, nodes)
            check.result, check.ok = "all of them fit on the samples", found is None
            if found is not None:
                check.result = found.summary
                self._add([found], case, case)

    def _scores(self) -> Scores | None:
        metric = self.notebook.settings.metric
        if metric is None:
            return None
        model = self.quantized.float_model
        ours = metric.measure(model)
        theirs = metric.measure(switch_on(model, self.quantized.quantizers))
        drop = metric.drop(ours, theirs)
        fine = drop <= _TOLERATED_DROP * max(abs(ours), abs(theirs))
        with self.notebook.check(metric.name) as check:
            check.result, check.ok = f"float {ours:.4g}, quantized {theirs:.4g}", fine
        return Scores(metric.name, metric.higher_is_better, ours, theirs, fine, metric.chance, metric.samples)

    def _look(self, case: Case, better: Sequence[Ideal], *, fine: bool) -> Case:
        """Find faults stage by stage, each put right before the next is looked for."""
        if _excess_db(case, _fixes(better, settings=True)) >= _FAULT_DB:
            case = self._accuse(case, _options(better, settings=True))
        now = case.loss(more=True)
        bad = _FAULT_DB if not now.agrees else _DESIGN_DB
        if not fine and now.sqnr_db < _GOOD_DB and _excess_db(case, _fixes(better, settings=False)) >= bad:
            case = self._accuse(case, _options(better, settings=False), design=True)
        for _ in range(_ROUNDS):
            if fine or case.loss(more=True).agrees:
                break
            case, more = self._inherent(case)
            if not more:
                break
        return case

    def _accuse(self, case: Case, candidates: Sequence[tuple[Suspect, Option]], *, design: bool = False) -> Case:
        """Find who must be put right, and why; with all of them right in the end."""
        stop = self.notebook.out_of_time
        known = {name for each in self.findings for name in each.tensors}
        fresh = [(suspect, option) for suspect, option in candidates if suspect.tensor not in known]
        accused = find_needed(case, [(suspect, option.fixes) for suspect, option in fresh], out_of_time=stop)
        kinds = {suspect.name: (suspect.kind, option.kind) for suspect, option in fresh}
        ranges = [each for each in accused if kinds[each.suspect.name] == ("activation", "range")]
        if ranges and misfit(case):
            found = self._calibration(case, ranges, "preprocessing") or self._calibration(case, ranges)
            if found is not None:
                everyone = merged(
                    option.fixes for suspect, option in fresh if kinds[suspect.name] == ("activation", "range")
                )
                self._add([found], case, case.mend(everyone))
                case = case.mend(everyone)
                accused = [each for each in accused if each not in ranges]
        for kind in dict.fromkeys(kinds[each.suspect.name] for each in accused):
            alike = [each for each in accused if kinds[each.suspect.name] == kind]
            if len(alike) > _FEW:
                everyone = merged(option.fixes for suspect, option in fresh if kinds[suspect.name] == kind)
                others = merged(each.fixes for each in accused if each not in alike)
                found = self._systematic(case.mend(others), alike, everyone)
                if found is not None:
                    self._add([found], case, case.mend(everyone))
                    case = case.mend(everyone)
                    accused = [each for each in accused if each not in alike]
        reasons = explained(case, accused, out_of_time=stop)
        if design:
            # More bits help everywhere; whether few places need them is asked later.
            reasons = [each for each in reasons if each.cause in _DESIGN]
            blamed = {name for each in reasons for name in each.tensors}
            accused = [each for each in accused if each.suspect.tensor in blamed]
        mended = case.mend(merged(each.fixes for each in accused))
        self._add(grouped(case, reasons, accused), case, mended)
        return mended

    def _systematic(self, case: Case, alike: Sequence[Accused], everyone: Fixes) -> Finding | None:
        """What is wrong in the same way at many places, as one finding."""
        first = explained(case, alike, out_of_time=self.notebook.out_of_time, most=1)
        if not first or not first[0].proven:
            return None
        return together(case, first[0], alike, everyone)

    def _calibration(
        self, case: Case, accused: Sequence[Accused], cause: str = "calibration-coverage"
    ) -> Finding | None:
        """Whether many ranges are wrong because the model was calibrated on other samples, or others' inputs."""
        everything = [each.name for each in case.facts.quantizers.values() if each.tensor in case.facts.observed]
        tensors = tuple(dict.fromkeys(case.facts.quantizers[name].tensor for name in everything))
        suspect = Suspect("", "activation", tuple(everything), "", tensors, "", ())
        nodes = tuple(dict.fromkeys(each.suspect.node for each in accused if each.suspect.node))
        blamed = tuple(each.suspect.tensor for each in accused)
        if cause == "preprocessing":  # which input it is, the cause itself says
            nodes, blamed = (), ()
        asked = ask(find_cause(cause, "quantization"), case, suspect, nodes=nodes, tensors=blamed)
        return replace(asked[0], share=1.0) if asked is not None and asked[0].proven else None

    def _artefacts(self, case: Case) -> None:
        """Tensors that look wrong in every table, and of which nothing comes."""
        kind = find_cause("metric-artefact", "quantization")
        known = {name for each in self.findings for name in each.tensors}
        for suspect in case.facts.suspects:
            if suspect.tensor in known or self.notebook.out_of_time():
                continue
            asked = ask(kind, case, suspect, nodes=suspect.nodes, tensors=suspect.tensors)
            if asked is not None and asked[0].proven:
                self._add([asked[0]], case, case)

    def _inherent(self, case: Case) -> tuple[Case, bool]:
        """What is lost although every quantizer is as good as its bits allow; whether to look on."""
        stop = self.notebook.out_of_time
        if stop():
            self.notebook.skip("which places need more than they have")
            return case, False
        known = {name for each in self.findings for name in each.tensors}
        suspects = [each for each in case.facts.suspects if each.tensor not in known]
        accused = find_few(case, suspects, limit=_FEW, out_of_time=stop)
        if accused:
            found = explained(case, accused, out_of_time=stop)
            mended = case.mend(merged(each.fixes for each in accused))
            self._add(grouped(case, found, accused), case, mended)
            return mended, bool(found)
        self.distributed = True
        if any(each.proven for each in self.findings):
            return case, False
        whole = Suspect("", "activation", (), "", (), "", ())
        asked = ask(find_cause("accumulated-error", "quantization"), case, whole, nodes=(), tensors=())
        if asked is not None:
            self._add([replace(asked[0], share=1.0)], case, case.mend(dict.fromkeys(case.facts.quantizers)))
        return case, False


def _options(better: Sequence[Ideal], *, settings: bool) -> list[tuple[Suspect, Option]]:
    found = [(each.suspect, each.best(settings=settings)) for each in better]
    return [(suspect, option) for suspect, option in found if option is not None]


def _fixes(better: Sequence[Ideal], *, settings: bool) -> Fixes:
    return merged(option.fixes for _, option in _options(better, settings=settings))


def _excess_db(case: Case, fixes: Fixes) -> float:
    """By how much a network is worse than it could be, on few samples and on more: on few, chance may say so."""
    return min(case.loss(more=more).excess_db(case.loss(fixes, more=more)) for more in (False, True))


def _outputs_text(loss: Loss) -> str:
    top1 = "" if loss.top1 is None else f", same top-1 {loss.top1:.1%}"
    name = loss.parts[loss.worst]
    return f"{name!r}: SQNR {loss.sqnr_db:.1f} dB, cosine {loss.cosine:.5f}{top1} ({loss.samples} samples)"
