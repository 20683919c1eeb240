"""Why a quantized network loses accuracy: what its arithmetic should cost, what it costs, who makes the rest."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from roundoff.core.coverage import Doubt, Judgement, LeftOut, MetricScores, Share
from roundoff.core.names import shown
from roundoff.core.quantizers import Quantizer
from roundoff.diagnosis.checks import (
    FewLevels,
    FileChecked,
    check_file,
    check_sums,
    few_levels,
    lint,
    remarks_text,
    weights_unseen,
)
from roundoff.diagnosis.culprits import Record, asked_bits, merged
from roundoff.diagnosis.error_profile import (
    layer_errors,
    network_score,
    precisions,
    with_other_profiles,
    with_profiles,
)
from roundoff.diagnosis.ideal import ideals, unlike_values
from roundoff.diagnosis.interventions import InterventionRunner, can_fuse
from roundoff.diagnosis.investigation import DiagnoseSettings, Investigation
from roundoff.diagnosis.loss import Loss, LossMeter, decibels_of
from roundoff.diagnosis.margins import loss_left_out
from roundoff.diagnosis.repairable_model import free_levers
from roundoff.diagnosis.result import (
    Diagnosis,
    DiagnosisKind,
    Finding,
    LayerErrors,
    Measure,
    NetworkName,
    NetworkScore,
)
from roundoff.diagnosis.stages import CulpritStages, RoomyLoss, Scores, TaskProof, best_fixes, roomy_loss
from roundoff.diagnosis.subject import Case, Fixes, loss_measures, open_case
from roundoff.errors import BadInput, RoundoffError
from roundoff.graph.insertion import switch_on
from roundoff.graph.load import Model
from roundoff.graph.quantized_model import UNREAD, QuantizedModel
from roundoff.measure.verdicts import with_metric
from roundoff.messages.message import Argument, Message, as_message, english, joined, message, verbatim
from roundoff.messages.numbers import EXACT_DB, percent_digits, score_text
from roundoff.quantize.agreement import JUDGE_SHARE, judge_outputs
from roundoff.run.capture import Samples

__all__ = [
    "DiagnoseSettings",
    "QuantizationEvidence",
    "Scores",
    "conclude",
    "diagnose_quantization",
    "examine",
    "sample_losses",
]


# What outputs lose sample by sample, by which two diagnoses can be told apart.


def sample_losses(runner: InterventionRunner, quantizers: Sequence[Quantizer]) -> list[Loss]:
    """What the outputs lose in each sample.

    Args:
        runner: Knows the network and its samples.
        quantizers: All that are on.

    Raises:
        ModelFailed: The model cannot be run.
    """
    losses = []
    for exact, found in runner.pairs(quantizers, fused=can_fuse(quantizers)):
        meter = LossMeter(runner.parts)
        meter.add(exact, found)
        losses.append(meter.loss())
    return losses


# The verdict: what was found, in words.

# A tensor of the running network that agrees less than this is a victim, if it is no culprit.
_AGREES = 0.99
# A tensor whose own quantizer has this part of its energy as error is none.
_OWN_FAULT = 0.01
_MOST_VICTIMS = 12
# As expected, but for chance between samples.
_WORSE_DB = 3.0
# Causes that only the file has, not its quantizers.
_FILE_CAUSES = frozenset({"wrong-dequantization"})


@dataclass(frozen=True, slots=True, eq=False)
class QuantizationEvidence:
    """All that was found.

    Attributes:
        case: The network as it was given.
        cured: The network with the places of all proven findings put right, and no others.
        findings: What was found, stage by stage.
        expected: What the outputs would lose with every quantizer at its best.
        reachable: What they would lose with that, or with what costs a chip nothing beside it.
        scores: The user's metric.
        distributed: Whether the loss has no few culprits.
        file: What the file loses as it runs, on all samples that are used; None without one.
        worse: Whether that is more than its quantizers do.
        hurried: Whether there was time for so few samples that they tell nothing.
        judgement: What the one judge says of the outputs; where it was not asked their loss decides.
        task: The user's metric as it is and with all that was found put right; None where it does not drop.
        restored: Whether it is then about what it is in float.
        layers: What every tensor that leaves a unit loses; None where there was no time for it.
        roomy: What ranges all over the network cost that leave most codes unused; None where they do not.
        others: What samples lose by ranges that were found without them; None where these are of other samples.
        few: What is lost with the ranges of so few samples that they do not show how far others reach; else None.
    """

    case: Case
    cured: Case
    findings: tuple[Finding, ...]
    expected: Loss
    scores: Scores | None
    distributed: bool
    reachable: Loss | None = None
    file: Loss | None = None
    worse: bool = False
    hurried: bool = False
    judgement: Judgement | None = None
    task: Measure | None = None
    restored: bool = False
    layers: LayerErrors | None = None
    roomy: RoomyLoss | None = None
    others: Loss | None = None
    few: Loss | None = None

    def graded(self, *, skipped: bool = False) -> Judgement | None:
        """The judgement with the user's metric, and with what there was no time for."""
        found, scores = self.judgement, self.scores
        if found is None:
            return None
        doubts = (*found.doubts, *(() if scores is None else scores.doubts))
        if (skipped or self.hurried) and not any(each.kind == "time" for each in doubts):
            doubts = (*doubts, Doubt("time"))
        if self.layers is not None:
            there, judged = len(self.layers.tensors), self.layers.judged
            left = (LeftOut("unreadable", there - judged),) if judged < there else ()
            found = replace(found, coverage=replace(found.coverage, tensors=Share(there, judged, left)))
        found = replace(found, doubts=doubts, grade="no_evidence" if found.good and doubts else found.grade)
        if scores is None or not scores.trusted:
            return found
        return with_metric(found, scores.change, scores.tolerated)


def _with_unread(judgement: Judgement, quantized: QuantizedModel) -> Judgement:
    """What is said of a file that was not run itself: what of it could not be read was not judged."""
    names = [each.node for each in quantized.oddities if each.kind in UNREAD]
    if not names:
        return judgement
    doubts = (*judgement.doubts, Doubt("unread", len(set(names)), name=names[0]))
    return replace(judgement, grade="no_evidence" if judgement.good else judgement.grade, doubts=doubts)


def conclude(evidence: QuantizationEvidence, notebook: Investigation) -> Diagnosis:
    """The diagnosis."""
    findings = _numbered(evidence.findings)
    # The figure that is printed is that of the file as it runs.
    loss = evidence.file or evidence.case.loss(more=True)
    harmful = [each for each in findings if each.cause != "metric-artefact"]
    proven = [each for each in harmful if each.proven and each.cause != "accumulated-error"]
    judgement = evidence.graded(skipped=bool(notebook.skipped))
    kind = _kind(evidence, loss, proven, harmful, judgement)
    unseen = weights_unseen(evidence.case)
    # The figures there are say nothing of the weights; their codes do.
    coarse: Sequence[FewLevels] = few_levels(evidence.case) if unseen else ()
    spoilt = kind == "healthy" and bool(coarse)
    kind = "not_enough_evidence" if spoilt else kind
    hurried = kind == "not_enough_evidence" and bool(notebook.skipped)
    verdict = _verdict(kind, evidence, loss, proven, hurried=hurried, judgement=judgement)
    if unseen:
        verdict = _few_levels_text(loss, coarse[0]) if spoilt else joined([verdict, _unseen_text(coarse)])
    measures = loss_measures(loss, evidence.reachable or evidence.expected)
    scores = evidence.scores
    if scores is not None:
        measures += (
            Measure(
                scores.name, "", scores.quantized, scores.in_float, scores.higher_is_better, samples=scores.samples
            ),
        )
    quantized, settings, layers = evidence.case.facts.quantized, notebook.settings, evidence.layers
    if settings.pictures and not notebook.out_of_time():
        findings = with_profiles(findings, evidence.case)
        if layers is not None:
            layers = with_other_profiles(layers, findings, evidence.case)
    return Diagnosis(
        reference=shown(quantized.float_model.path),
        subject=settings.subject or verbatim(""),
        side="quantization",
        kind=kind,
        verdict=verdict,
        findings=findings,
        measures=measures,
        victims=_victims(evidence, findings) if kind == "culprits" else (),
        checks=tuple(notebook.checks),
        not_looked_at=tuple(notebook.skipped),
        notes=(
            *notebook.notes,
            *evidence.case.runner.notes,
            *_sinks(evidence.case),
            *map(as_message, quantized.notes),
        ),
        samples=loss.samples,
        judgement=judgement,
        metric=None if scores is None else _metric_scores(scores, evidence.case.runner.samples.names),
        scores=() if scores is None else _network_scores(scores),
        layers=layers,
        target=settings.target,
        data=evidence.case.runner.samples.label,
        precisions=precisions(quantized.quantizers),
        **_by_sample(evidence, notebook),
    )


def _sinks(case: Case) -> tuple[Message, ...]:
    """Tokens that hold all maxima, of networks that have tokens."""
    if not case.facts.parts.is_transformer:
        return ()
    from roundoff.diagnosis.causes.transformers import sink_notes

    return sink_notes(case)


def _metric_scores(scores: Scores, names: Sequence[str]) -> MetricScores:
    """The metric by sample, for a gate; rows of one sample are numbered."""
    rows, count = len(scores.values), len(names)
    if rows == count:
        samples = tuple(map(shown, names))
    else:
        each = rows // count if count and rows % count == 0 else 0
        samples = tuple(f"{shown(name)} {row}" for name in names for row in range(each)) if each else ()
    return MetricScores(str(scores.name), scores.higher_is_better, samples, scores.values)


def _network_scores(scores: Scores) -> tuple[NetworkScore, ...]:
    """The metric of both networks, where it was kept by sample."""
    both: tuple[tuple[NetworkName, Sequence[float]], ...] = (("float", scores.exact), ("quantized", scores.values))
    return tuple(
        network_score(name, np.asarray(found), samples=scores.samples) for name, found in both if len(found)
    )


def _by_sample(evidence: QuantizationEvidence, notebook: Investigation) -> dict[str, Any]:
    """Signal to noise of each sample at the worst part, by which runs are told apart; nothing without time."""
    case = evidence.case
    if evidence.worse or notebook.out_of_time(case.runner.seconds):
        return {}
    worst = case.loss(more=True).worst
    found = [each.of_part(worst).sqnr_db for each in sample_losses(case.runner, case.quantizers())]
    return {"sample_names": case.runner.chosen.names, "sample_sqnr_db": tuple(found)}


def _numbered(findings: Sequence[Finding]) -> tuple[Finding, ...]:
    ordered = sorted(findings, key=lambda each: (not each.proven, -each.share))
    return tuple(replace(each, number=number) for number, each in enumerate(ordered, start=1))


def _kind(
    evidence: QuantizationEvidence,
    loss: Loss,
    proven: Sequence[Finding],
    findings: Sequence[Finding],
    judgement: Judgement | None,
) -> DiagnosisKind:
    scores = evidence.scores
    fine = scores is not None and scores.fine
    if scores is not None and scores.guesses:
        # Labels of other classes say nothing of the float network.
        return "not_enough_evidence" if scores.mislabelled else "elsewhere"
    # What is measured on samples without content accuses nobody.
    doubts = () if judgement is None else judgement.doubts
    blank = any(each.kind == "constant" and each.count == each.of for each in doubts)
    if proven and not blank:
        return "culprits"
    grade = judgement.grade if judgement is not None else "fine" if loss.agrees or fine else "lossy"
    if evidence.distributed and grade == "lossy" and not blank:
        return "distributed"
    explained = [each for each in findings if not (evidence.distributed and each.cause == "accumulated-error")]
    unexplained = bool(explained) and loss.excess_db(evidence.expected) >= _WORSE_DB
    roomy = evidence.roomy is not None and evidence.roomy.doubtful
    few = evidence.few is not None and loss.excess_db(evidence.few) >= _WORSE_DB
    if unexplained or roomy or few or evidence.hurried or evidence.worse:
        return "not_enough_evidence"
    # Outputs that agree and a metric that drops: what lies behind the network is to blame.
    agrees = loss.agrees if evidence.judgement is None else evidence.judgement.good
    if scores is not None and scores.drops and agrees:
        return "elsewhere"
    return "healthy" if grade == "fine" else "not_enough_evidence"


def _verdict(
    kind: DiagnosisKind,
    evidence: QuantizationEvidence,
    loss: Loss,
    proven: Sequence[Finding],
    *,
    hurried: bool,
    judgement: Judgement | None = None,
) -> Message:
    now, best = decibels_of(loss.sqnr_db), decibels_of((evidence.reachable or evidence.expected).sqnr_db)
    match kind:
        case "healthy":
            return _healthy_text(evidence, loss)
        case "culprits":
            return _culprits_text(evidence, loss, proven)
        case "distributed":
            return message("diagnosis.verdict_distributed", db=now)
        case "elsewhere":
            return _elsewhere_text(evidence, now, agrees=loss.agrees)
        case _:
            return _open_text(evidence, judgement, hurried=hurried, db=now, best=best)


def _open_text(
    evidence: QuantizationEvidence, judgement: Judgement | None, *, hurried: bool, db: Argument, best: Argument
) -> Message:
    """Why there is not enough evidence."""
    scores = evidence.scores
    wrong = scores.mislabelled if scores is not None and scores.guesses else None
    if wrong is not None:
        return message("coverage.doubt_labels", count=wrong.count, of=wrong.of, name=wrong.name)
    if judgement is not None and judgement.grade in ("no_evidence", "incomplete") and not hurried:
        key = "diagnosis.verdict_no_ground" if judgement.doubts else "diagnosis.verdict_outputs_not_judged"
        return message(key, db=db)
    if evidence.roomy is not None and evidence.roomy.doubtful and not evidence.findings and not hurried:
        return _roomy_text(message("diagnosis.verdict_loss", db=db), evidence)
    if evidence.few is not None and not evidence.findings:
        best = decibels_of(evidence.few.sqnr_db)
    key = "diagnosis.verdict_no_proof_in_time" if hurried else "diagnosis.verdict_no_proof"
    return _roomy_text(message(key, db=db, best=best), evidence)


def _healthy_text(evidence: QuantizationEvidence, loss: Loss) -> Message:
    told = _roomy_text(_kept_text(evidence, loss), evidence)
    others = evidence.others
    if others is None or others.excess_db(loss) < _WORSE_DB:
        return told
    return joined([told, message("diagnosis.verdict_left_out", db=decibels_of(others.sqnr_db))])


def _roomy_text(told: Message, evidence: QuantizationEvidence) -> Message:
    """The same, and that ranges all over the network are wider than the samples."""
    roomy = evidence.roomy
    if roomy is None:
        return told
    gaps = {"count": roomy.count, "times": roomy.times, "db": decibels_of(roomy.after.sqnr_db)}
    return joined([told, message("diagnosis.verdict_roomy", **gaps)])


def _kept_text(evidence: QuantizationEvidence, loss: Loss) -> Message:
    if loss.sqnr_db >= EXACT_DB:
        return message("diagnosis.verdict_healthy_exact")
    best = evidence.reachable or evidence.expected
    now, excused = decibels_of(loss.sqnr_db), evidence.judgement is not None and not evidence.judgement.good
    if evidence.scores is not None and excused:
        scores = evidence.scores
        ends = _ends(scores.name, before=scores.in_float, after=scores.quantized)
        kept = message("diagnosis.verdict_healthy_metric", db=now, metric=scores.name, **ends)
    elif best.sqnr_db - loss.sqnr_db >= _WORSE_DB or evidence.roomy is not None:
        kept = message("diagnosis.verdict_healthy_within", db=now)
    elif loss.sqnr_db >= best.sqnr_db:
        return message("diagnosis.verdict_healthy", db=now)
    else:
        return message("diagnosis.verdict_healthy_best", db=now, best=decibels_of(best.sqnr_db))
    if best.sqnr_db - loss.sqnr_db < _WORSE_DB:
        return kept
    return joined([kept, message("diagnosis.verdict_best_possible", best=decibels_of(best.sqnr_db))])


def _ends(name: Message, **values: float) -> dict[str, Argument]:
    """Values of the user's metric, for the gaps of a message."""
    return {gap: score_text(str(name), value) for gap, value in values.items()}


def _few_levels_text(loss: Loss, worst: FewLevels) -> Message:
    """Good outputs of a file without its float model, whose weights use few of their codes."""
    return message("diagnosis.verdict_few_levels", db=decibels_of(loss.sqnr_db), **_levels(worst))


def _unseen_text(coarse: Sequence[FewLevels]) -> Message:
    """What a verdict leaves out that was found without the float model."""
    if not coarse:
        return message("diagnosis.verdict_weights_unseen")
    return message("diagnosis.verdict_weights_unseen_coarse", **_levels(coarse[0]))


def _levels(worst: FewLevels) -> dict[str, Argument]:
    return {"node": worst.node, "few": worst.channels, "all": worst.total, "levels": worst.levels}


# Without what makes most of a loss its energy is at most half.
_HALF_DB = 3.0


def _culprits_text(evidence: QuantizationEvidence, loss: Loss, proven: Sequence[Finding]) -> Message:
    cured = evidence.cured.loss(more=True).sqnr_db
    if all(each.cause in _FILE_CAUSES and each.measures for each in proven) and evidence.file is not None:
        # What is wrong in the file alone was put right in the file, and its figure is the one to go by.
        cured = max(each.measures[0].after for each in proven)
    after = decibels_of(cured)
    names = list(dict.fromkeys(name for each in proven for name in each.nodes[:1] or each.tensors[:1]))
    others = sum(each.places for each in proven) - 1
    task, scores = evidence.task, evidence.scores
    part = evidence.distributed or (cured - loss.sqnr_db < _HALF_DB and not evidence.restored)
    key = f"diagnosis.verdict_culprit{'s' if others else ''}{'_part' if part else ''}"
    who: dict[str, Argument] = {"name": names[0]} | ({"count": others} if others else {})
    told = [message(key, **who, db=decibels_of(loss.sqnr_db), after=after)]
    if task is not None and scores is not None:
        ends = _ends(task.what, before=task.before, after=task.after, exact=scores.in_float)
        told.append(message("diagnosis.verdict_metric_then", metric=task.what, **ends))
    if part:
        told.append(message("diagnosis.verdict_rest_adds_up"))
    return joined(told) if len(told) > 1 else told[0]


def _elsewhere_text(evidence: QuantizationEvidence, now: Argument, *, agrees: bool) -> Message:
    scores = evidence.scores
    if scores is None:
        return message("diagnosis.verdict_nothing_wrong")
    if scores.drops and agrees and not scores.guesses:
        return joined([_drop_text(scores, now), message("diagnosis.verdict_look_behind")])
    return message("diagnosis.verdict_float_guesses", score=score_text(str(scores.name), scores.in_float))


def _drop_text(scores: Scores, now: Argument) -> Message:
    """What a metric loses."""
    ends = _ends(scores.name, before=scores.in_float, after=scores.quantized)
    return message("diagnosis.verdict_metric_drops", db=now, metric=scores.name, **ends)


def _victims(evidence: QuantizationEvidence, findings: Sequence[Finding]) -> tuple[str, ...]:
    """Tensors that are wrong in the running network although nothing is wrong with their own quantizers."""
    facts, layers = evidence.case.facts, evidence.layers
    if layers is None:
        return ()
    blamed = {name for each in findings for name in (*each.tensors, *each.nodes)}
    own = {each.tensor: facts.damage(each) for each in facts.suspects}
    blamed |= {name for name, damage in own.items() if damage is not None and damage.ratio > _OWN_FAULT}
    found = zip(layers.cosine, layers.tensors, strict=True)
    candidates = ((each, name) for each, name in found if name in facts.observed and name not in blamed)
    worst = sorted((cosine, name) for cosine, name in candidates if cosine is not None and cosine < _AGREES)
    return tuple(name for _, name in worst[:_MOST_VICTIMS])


# The verdict needs so many more runs of the network.
_LAST_RUNS = 3
# With fewer samples chance decides; the time that is given may suffice for no more.
_FEWEST = 4
# The file as it runs and its quantizers differ by so much that both figures are told.
_NOTED_DB = 0.5
# What is worse, of what is said of a file and of its quantizers.
_WORSE = ("fine", "incomplete", "no_evidence", "lossy")
# Measuring all tensors takes about as long as so many runs.
_LAYER_RUNS = 4
# What costs a chip nothing takes about so many runs to try.
_LEVER_RUNS = 20
# So many tensors are named in a check.
_NAMED = 3
# So many findings are proven by the user's metric, too.
_BY_THE_METRIC = 3


def diagnose_quantization(
    quantized: QuantizedModel, samples: Samples, settings: DiagnoseSettings | None = None
) -> Diagnosis:
    """Find out whether, where and why a quantized network loses accuracy; see `examine`."""
    return examine(quantized, samples, settings)[0]


def examine(
    quantized: QuantizedModel, samples: Samples, settings: DiagnoseSettings | None = None
) -> tuple[Diagnosis, Case]:
    """Find out whether, where and why a quantized network loses accuracy.

    Args:
        quantized: The float model and its quantizers.
        samples: What both are fed.
        settings: What else is known, and how long it may take.

    Returns:
        The diagnosis, and the network with all that was run and observed of it, for a repair to go on from.

    Raises:
        BadInput: Nothing is quantized, or samples do not fit the model.
        ModelFailed: The model cannot be run.
    """
    settings = settings or DiagnoseSettings()
    if not quantized.quantizers:
        raise BadInput(
            english("{path} has no quantizers, so there is nothing to diagnose.", path=quantized.float_model.path),
            fix=english("give a quantized model with --quantized, or a target with --target"),
        )
    notebook = Investigation(settings)
    for each in settings.skipped:
        notebook.skip(each)
    # Ranges may be as large as numbers get, and channels silent.
    with np.errstate(all="ignore"):
        return _QuantizationDiagnosis(quantized, samples, notebook).run()


@dataclass(slots=True)
class _QuantizationDiagnosis:
    quantized: QuantizedModel
    samples: Samples
    notebook: Investigation
    record: Record = field(default_factory=Record)
    file: FileChecked | None = None

    def run(self) -> tuple[Diagnosis, Case]:
        settings = self.notebook.settings
        with self.notebook.check(message("diagnosis.check_numbers")) as check:
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
            deadline=settings.deadline,
        )
        with self.notebook.check(message("diagnosis.check_outputs")) as check:
            check.result = _outputs_text(case.loss(more=True))
            judgement = self._judgement()
            check.ok = judgement.good
        few = len(case.runner.indices) < min(_FEWEST, len(self.samples.names))
        hurried = few or settings.few_ranges
        # Nobody is accused by fewer samples.
        self.notebook.reserve = math.inf if hurried else _LAST_RUNS * case.runner.seconds
        self._asked(case)
        self._file(case)
        judgement = self._of_file(case, judgement)
        scores = self._scores(case)
        better, lossy = ideals(case), judgement.grade == "lossy"
        stages = CulpritStages(self.notebook, self.record, self._task(scores), lossy=lossy)
        settings.progress.start("looking for causes", len(case.facts.suspects))
        try:
            self._sums(case, [each.node for each in remarks if each.kind == "accumulator"])
            mended = stages.look(case, better, fine=scores is not None and scores.fine)
            stages.artefacts(mended)
        finally:
            settings.progress.finish()
        best, cured = best_fixes(better, settings=True), self.record.cured(case)
        evidence = QuantizationEvidence(
            case=case,
            cured=cured,
            findings=self._findings(mended, stages.task),
            expected=mended.loss(best, more=True),
            reachable=self._reachable(case, mended, best, good=judgement.good),
            scores=scores,
            distributed=stages.distributed,
            file=None if self.file is None else self.file.loss,
            worse=self.file is not None and self.file.worse,
            hurried=hurried,
            judgement=judgement,
            task=None if stages.task is None else stages.task.measured(case, cured),
            restored=stages.task is not None and stages.task.restored(cured),
            layers=self._layers(case),
            roomy=None if self.notebook.out_of_time(2 * case.runner.seconds) else roomy_loss(case),
            others=self._others(case, good=judgement.good),
            few=self._few(case),
        )
        return conclude(evidence, self.notebook), case

    def _layers(self, case: Case) -> LayerErrors | None:
        """What every tensor loses, in one more pass over the samples; a verdict does not wait for it."""
        settings, runner = self.notebook.settings, case.runner
        if not settings.pictures or self.notebook.out_of_time(_LAYER_RUNS * runner.seconds):
            return None
        runner.bench.rest()
        try:
            return layer_errors(self.quantized, case.facts.everything, self.samples, runner.indices, settings)
        except RoundoffError:
            return None

    def _others(self, case: Case, *, good: bool) -> Loss | None:
        """What samples lose that ranges do not know, where outputs are good and nobody is accused."""
        accused = any(each.proven for each in self.record.findings)
        if not good or accused or self.notebook.out_of_time(2 * case.runner.seconds):
            return None
        try:
            return loss_left_out(case)
        except RoundoffError:
            return None

    def _few(self, case: Case) -> Loss | None:
        """What is lost with the ranges that few samples have: these accuse nobody, and allow no good word."""
        if case.facts.unseen_by_few == 1 or self.notebook.out_of_time(case.runner.seconds):
            return None
        return case.loss(merged(unlike_values(case, settings=True).values()), more=True)

    def _reachable(self, case: Case, mended: Case, best: Fixes, *, good: bool) -> Loss:
        """What is lost with all findings put right, or by what costs a chip nothing where that gives more."""
        found = [mended.loss(more=True), mended.loss(best, more=True)]
        fits = len(case.runner.indices) > 1 and not self.notebook.out_of_time(_LEVER_RUNS * case.runner.seconds)
        if not good and fits:
            with self.notebook.check(message("diagnosis.check_levers")) as check:
                ranges = case.loss(best, more=True)
                levers = self._levers(case.mend(best))
                names, after = max(levers, key=lambda each: each[1].sqnr_db, default=((), ranges))
                told = {"db": decibels_of(after.sqnr_db), "other": decibels_of(ranges.sqnr_db)}
                helps = ranges.excess_db(after) >= _NOTED_DB
                check.result = message(f"diagnosis.levers_{'reach' if helps else 'idle'}", names=names, **told)
                found.append(after)
        # Of figures that differ by nothing worth the name the one is told that the verdict tells.
        most = min(found, key=lambda each: each.value)
        return next(each for each in found if each.excess_db(most) < _NOTED_DB)

    def _levers(self, case: Case) -> list[tuple[tuple[str, ...], Loss]]:
        try:
            return free_levers(case, threads=self.notebook.settings.threads)
        except RoundoffError:
            return []

    def _task(self, scores: Scores | None) -> TaskProof | None:
        """The user's metric as part of the proofs, where it drops by more than chance."""
        metric = self.notebook.settings.metric
        if metric is None or scores is None or not scores.drops:
            return None
        return TaskProof(metric, np.asarray(scores.exact), np.asarray(scores.values))

    def _findings(self, mended: Case, task: TaskProof | None) -> tuple[Finding, ...]:
        """All findings with their shares, and with what the worst of them do to the user's metric."""
        found = self.record.shared(mended, out_of_time=self.notebook.out_of_time)
        if task is None:
            return found
        worst = [each for each in sorted(found, key=lambda each: -each.share) if each.proven][:_BY_THE_METRIC]
        measured: dict[int, Finding] = {}
        for each in worst:
            fixes = self.record.fixes_of(each)
            if fixes and not self.notebook.out_of_time(2 * mended.runner.sample_seconds * task.metric.samples):
                change = task.measured(mended.put_back(fixes), mended.mend(fixes))
                measured[id(each)] = replace(each, measures=(*each.measures, change))
        return tuple(measured.get(id(each), each) for each in found)

    def _judgement(self) -> Judgement:
        """What the one judge says: on its own choice of samples, so that every command says the same."""
        if self.notebook.settings.judged is not None:
            return self.notebook.settings.judged
        return self._judged(switch_on(self.quantized.float_model, self.quantized.quantizers))

    def _judged(self, network: Model) -> Judgement:
        settings = self.notebook.settings
        return judge_outputs(
            self.quantized.float_model,
            network,
            self.samples,
            deadline=settings.deadline.share(JUDGE_SHARE),
            threads=settings.threads,
            progress=settings.progress,
        ).judgement

    def _asked(self, case: Case) -> None:
        """Whether what was asked for is what the model has."""
        if self.notebook.settings.plan is None:
            return
        with self.notebook.check(message("diagnosis.check_precision")) as check:
            names = [case.facts.quantizers[name].tensor for name in case.facts.asked]
            check.ok = not names
            check.result = message("diagnosis.precision_had")
            if names:
                check.result = message("diagnosis.precision_refused", names=tuple(names[:_NAMED]))

    def _file(self, case: Case) -> None:
        """Whether the file computes what its quantizers say."""
        given = self.notebook.settings.given
        if given is None:
            return
        if self.notebook.out_of_time(case.runner.seconds):
            self.notebook.skip(message("diagnosis.skip_file"))
            return
        with self.notebook.check(message("diagnosis.check_file")) as check:
            self.file = check_file(case, given)
            check.result = self.file.result
            check.ok = not self.file.worse and not self.file.findings
            for found in self.file.findings:
                self.record.add(found)
        ours, theirs = self.file.loss, case.loss(more=True)
        explained = any(found.proven for found in self.file.findings)
        if ours is not None and not explained and max(ours.excess_db(theirs), theirs.excess_db(ours)) >= _NOTED_DB:
            keeps, other = decibels_of(ours.sqnr_db), decibels_of(theirs.sqnr_db)
            self.notebook.notes.append(message("diagnosis.note_by_quantizers", db=keeps, other=other))

    def _of_file(self, case: Case, found: Judgement) -> Judgement:
        """What is said of the file: as it runs where that is not what its quantizers say, the worse of both."""
        given, ours = self.notebook.settings.given, None if self.file is None else self.file.loss
        if given is None or ours is None:
            return _with_unread(found, self.quantized)
        theirs, unread = case.loss(more=True), any(each.kind in UNREAD for each in self.quantized.oddities)
        if not unread and max(ours.excess_db(theirs), theirs.excess_db(ours)) < _NOTED_DB:
            return found
        told = self._judged(given)
        return max(told, found, key=lambda each: _WORSE.index(each.grade))

    def _sums(self, case: Case, nodes: Sequence[str]) -> None:
        """Whether sums that may not fit their register do not."""
        if not nodes:
            return
        if self.notebook.out_of_time():
            self.notebook.skip(message("diagnosis.skip_sums"))
            return
        with self.notebook.check(message("diagnosis.check_sums")) as check:
            found = check_sums(case, nodes)
            check.result, check.ok = message("diagnosis.sums_fit"), found is None
            if found is not None:
                check.result = found.summary
                self.record.add(found)

    def _scores(self, case: Case) -> Scores | None:
        metric = self.notebook.settings.metric
        if metric is None:
            return None
        per_sample = case.runner.sample_seconds + case.runner.seconds / len(case.runner.indices)
        if self.notebook.out_of_time(metric.samples * per_sample):
            self.notebook.skip(message("diagnosis.skip_metric", metric=metric.name, count=metric.samples))
            return None
        model = self.quantized.float_model
        with self.notebook.check(metric.name) as check:
            network = switch_on(model, self.quantized.quantizers)
            values = metric.values(model), metric.values(network)
            ours, theirs = (float(each.mean()) for each in values)
            change = metric.change(model, network, values)
            if change.chance is None and change.loss > 0:
                self.notebook.notes.append(message("diagnosis.note_metric_whole", metric=metric.name))
            before, after = (score_text(str(metric.name), each) for each in (ours, theirs))
            scores = Scores(
                metric.name,
                metric.higher_is_better,
                ours,
                theirs,
                metric.chance,
                metric.samples,
                change=change,
                doubts=metric.doubts(model, values[0]),
                values=tuple(values[1].tolist()),
                exact=tuple(values[0].tolist()),
            )
            check.result = message("diagnosis.metric_scored", before=before, after=after)
            check.ok = change.loss <= scores.tolerated
        return scores


def _outputs_text(loss: Loss) -> Message:
    scores: dict[str, Argument] = {"name": loss.parts[loss.worst], "db": decibels_of(loss.sqnr_db)}
    scores |= {"cosine": score_text("cosine", loss.cosine), "count": loss.samples}
    if loss.top1 is None:
        return message("diagnosis.outputs_scored", **scores)
    return message("diagnosis.outputs_scored_top", **scores, percent=percent_digits(loss.top1, 1))
