"""Why a quantized network loses accuracy: what its arithmetic should cost, what it costs, who makes the rest."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from roundoff.core.findings import Diagnosis
from roundoff.core.wording import counted, decibels_text
from roundoff.diagnosis import causes as _causes
from roundoff.diagnosis.asked import asked_bits
from roundoff.diagnosis.case import Case, open_case
from roundoff.diagnosis.file_check import check_file
from roundoff.diagnosis.ideal import ideals
from roundoff.diagnosis.integers import accumulator_finding
from roundoff.diagnosis.investigation import DiagnoseSettings, Investigation
from roundoff.diagnosis.lint import lint, remarks_text
from roundoff.diagnosis.loss import Loss
from roundoff.diagnosis.record import Record
from roundoff.diagnosis.stages import Stages, best_fixes
from roundoff.diagnosis.verdict import Evidence, Scores, conclude
from roundoff.errors import BadInput
from roundoff.graph.insertion import switch_on
from roundoff.graph.quantized_model import QuantizedModel
from roundoff.runtime.feeds import Samples

__all__ = ["DiagnoseSettings", "diagnose_quantization"]

_LOADED = _causes
# The verdict needs so many more runs of the network.
_LAST_RUNS = 3
# With fewer samples chance decides; the time that is given may suffice for no more.
_FEWEST = 4
# So many tensors are named in a check.
_NAMED = 3
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
    # Ranges may be as large as numbers get, and channels silent.
    with np.errstate(all="ignore"):
        return _Diagnosing(quantized, samples, notebook).run()


@dataclass(slots=True)
class _Diagnosing:
    quantized: QuantizedModel
    samples: Samples
    notebook: Investigation
    record: Record = field(default_factory=Record)
    worse: Loss | None = None

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
            deadline=settings.deadline,
        )
        with self.notebook.check("outputs") as check:
            check.result = _outputs_text(case.loss(more=True))
            check.ok = case.loss(more=True).agrees
        hurried = len(case.lab.indices) < min(_FEWEST, len(self.samples.names))
        # Nobody is accused by fewer samples.
        self.notebook.reserve = math.inf if hurried else _LAST_RUNS * case.lab.seconds
        self._asked(case)
        self._file(case)
        scores = self._scores(case)
        better, stages = ideals(case), Stages(self.notebook, self.record)
        settings.progress.start("looking for causes", len(case.facts.suspects))
        try:
            self._sums(case, [each.node for each in remarks if each.kind == "accumulator"])
            mended = stages.look(case, better, fine=scores is not None and scores.fine)
            stages.artefacts(mended)
        finally:
            settings.progress.finish()
        evidence = Evidence(
            case=case,
            mended=mended,
            findings=self.record.shared(),
            expected=mended.loss(best_fixes(better, settings=True), more=True),
            scores=scores,
            distributed=stages.distributed,
            worse=self.worse,
            hurried=hurried,
        )
        return conclude(evidence, self.notebook)

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
        if self.notebook.out_of_time(case.lab.seconds):
            self.notebook.skip("whether the file computes what its quantizers say")
            return
        with self.notebook.check("the file itself") as check:
            check.result, found, self.worse = check_file(case, given)
            check.ok = self.worse is None
            if found is not None:
                self.record.add_one(found, found.measures[0].after - found.measures[0].before)

    def _sums(self, case: Case, nodes: Sequence[str]) -> None:
        """Whether sums that may not fit their register do not."""
        if not nodes:
            return
        if self.notebook.out_of_time():
            self.notebook.skip("whether sums of products fit their register")
            return
        with self.notebook.check("sums of products") as check:
            found = accumulator_finding(case, nodes)
            check.result, check.ok = "all of them fit on the samples", found is None
            if found is not None:
                check.result = found.summary
                self.record.add_one(found, found.measures[0].after - found.measures[0].before)

    def _scores(self, case: Case) -> Scores | None:
        metric = self.notebook.settings.metric
        if metric is None:
            return None
        per_sample = case.lab.sample_seconds + case.lab.seconds / len(case.lab.indices)
        if self.notebook.out_of_time(metric.samples * per_sample):
            self.notebook.skip(f"{metric.name} on {counted(metric.samples, 'sample')}")
            return None
        model = self.quantized.float_model
        with self.notebook.check(metric.name) as check:
            ours = metric.measure(model)
            theirs = metric.measure(switch_on(model, self.quantized.quantizers))
            drop = metric.drop(ours, theirs)
            fine = drop <= _TOLERATED_DROP * max(abs(ours), abs(theirs))
            check.result, check.ok = f"float {ours:.4g}, quantized {theirs:.4g}", fine
        return Scores(metric.name, metric.higher_is_better, ours, theirs, fine, metric.chance, metric.samples)


def _outputs_text(loss: Loss) -> str:
    top1 = "" if loss.top1 is None else f", same top-1 {loss.top1:.1%}"
    name = loss.parts[loss.worst]
    samples = counted(loss.samples, "sample")
    return f"{name!r}: SQNR {decibels_text(loss.sqnr_db)}, cosine {loss.cosine:.5f}{top1} ({samples})"
