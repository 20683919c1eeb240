"""Finding out why accuracy is lost, and repairing it, as a function."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from roundoff.api.call import Call, one_of, public, words_in
from roundoff.api.inputs import (
    DataLike,
    EvaluatorLike,
    LabelsLike,
    ModelLike,
    PathLike,
    as_path,
    check_files,
    describe_value,
    file_inputs,
    is_path,
    known_evaluator,
    open_data,
    open_evaluator,
    open_labels,
)
from roundoff.api.outcome import Outcome
from roundoff.api.subject import (
    Subject,
    SubjectOptions,
    check_quantizers,
    check_subject,
    open_subject,
    or_in_project,
)
from roundoff.core.document import array_input, environment
from roundoff.core.files import model_stem, output_directory, write_text
from roundoff.core.progress import Deadline
from roundoff.errors import EXIT_OK, EXIT_THRESHOLD_MISSED, BadInput
from roundoff.graph.transformers import drawn_topology
from roundoff.messages.message import english
from roundoff.run.evaluators import JoinedSamples, check_apart

if TYPE_CHECKING:
    from roundoff.core.document import InputFile, RunDocument
    from roundoff.core.tensors import TensorSource
    from roundoff.diagnosis.devices.readout import KnownNames
    from roundoff.diagnosis.investigation import DiagnoseSettings, TaskMetric
    from roundoff.diagnosis.repair import Fixed
    from roundoff.diagnosis.result import Check, Diagnosis
    from roundoff.graph.quantized_model import QuantizedModel
    from roundoff.run.capture import Samples
    from roundoff.search.result import Trial
    from roundoff.vendors.dialects.settings import ToolSettings

_QUANTIZING_ONLY = ("evaluator", "labels", "target")


@dataclass(frozen=True, slots=True, repr=False)
class DiagnosisOutcome(Outcome["Diagnosis"]):
    """What is wrong, why, and what helps; and the means to carry that out.

    Attributes:
        work: What was looked at, for a repair to go on from.
        fixed: What a repair came to; None before one, or where there was nothing to repair.
        tool_settings: What was repaired in the words of other tools, where asked for.
    """

    work: Any = None
    fixed: "Fixed | None" = None
    tool_settings: "ToolSettings | None" = None

    @property
    def repaired(self) -> "QuantizedModel | None":
        """The repaired model; None where nothing helped."""
        return None if self.helpful is None else self.helpful.quantized

    @property
    def helpful(self) -> "Fixed | None":
        """The repair, where any of its steps was kept."""
        return (
            self.fixed if self.fixed is not None and any(step.kept for step in self.fixed.repair.steps) else None
        )

    def telling(self, **changes: Any) -> "DiagnosisOutcome":
        """The same with other parts of the diagnosis, such as what to do next."""
        found = replace(self.result, **changes)
        elapsed_s = self.work.subject.call.elapsed_s
        document = replace(self.document, diagnosis=found, environment=environment(elapsed_s))
        return replace(self, result=found, document=document, exit_code=_exit_code(found))

    @public
    def fix(
        self,
        directory: PathLike | None = None,
        *,
        force: bool = False,
        dialect: Any = None,
        test_data: DataLike = None,
        test_labels: LabelsLike = None,
        on_trial: "Callable[[Trial, Trial, str], None] | None" = None,
        tell: Callable[[str], None] | None = None,
    ) -> "DiagnosisOutcome":
        """Carry out remedies, cheapest first; where they do not suffice, search for a better recipe.

        It goes on from what the diagnosis loaded and prepared. A part of the samples is held out: ranges are found
        and remedies chosen on the others, and what came of it is measured on these.

        Args:
            directory: Write the repaired model and the run there.
            force: Replace an earlier run.
            dialect: Also give the repaired model in the words of other tools.
            test_data: Judge the repair on these samples, instead of some of those that were diagnosed with.
            test_labels: Right classes of these.
            on_trial: Told of each trial of a search, the best so far, and the name of the metric.
            tell: Told that a search begins.

        Returns:
            The diagnosis with what the repair came to; `repaired` is the model.

        Raises:
            BadInput: It is the diagnosis of a device, whose fault is not in the model.
        """
        fixed = self.work.repair(
            self.result, test_data=test_data, test_labels=test_labels, on_trial=on_trial, tell=tell
        )
        outcome = self if fixed is None else replace(self.telling(repair=fixed.repair), fixed=fixed)
        if dialect is not None and outcome.helpful is not None:
            settings = self.work.in_dialects(outcome.helpful, words_in(dialect, option="--dialect"))
            outcome = replace(outcome, tool_settings=settings)
        if directory is not None:
            outcome.save(directory, force=force)
        return outcome

    @public
    def save(self, directory: PathLike, *, force: bool = False) -> tuple[Path, ...]:
        """Write run.json and findings.csv; after a repair that helped the repaired model, too."""
        from roundoff.core.document import DOCUMENT_NAME
        from roundoff.report.pages import run_files

        folder = as_path(directory, option="-o")
        with output_directory(folder, marker=DOCUMENT_NAME, force=force) as staged:
            names: list[str] = []
            if self.helpful is not None:
                names = self.work.write_model(self.helpful, staged, sha256=self.document.inputs[0].sha256)
            settings = {} if self.tool_settings is None else self.tool_settings.files()
            files = run_files(self.document)
            for name, text in {**settings, **files}.items():
                write_text(staged / name, text)
        return tuple(folder / name for name in (*names, *settings, *files))


@public
def diagnose(
    model: ModelLike | None = None,
    *,
    dumps: Any = None,
    dump_format: str | None = None,
    aliases: PathLike | Mapping[str, str] | None = None,
    run: str | None = None,
    evaluator: EvaluatorLike | None = None,
    labels: LabelsLike = None,
    time: float | None = None,
    explore: bool = False,
    tell: "Callable[[Check], None] | None" = None,
    **options: Unpack[SubjectOptions],
) -> DiagnosisOutcome:
    """Find out why a quantized model loses accuracy: which nodes, why, what to do.

    Args:
        model: The float model.
        dumps: What a device computed, instead of what its quantization costs: a file, a folder, or arrays by name.
        dump_format: Format of the dumps; recognised when None.
        aliases: Names in the dumps by those in the model, or a file of them.
        run: Of several runs in the folder of dumps, the one of this name; else one that is not the golden copy.
        evaluator: The user's own measure: a Python file or a function ``evaluate(run, samples)``.
        labels: Right classes.
        time: Be done in so many seconds.
        explore: Observe at once what a repair may quantize otherwise; `fix` is quicker then.
        tell: Told of each check when it is over.
        options: What is quantized or is to be, and what it is fed.
    """
    from roundoff.diagnosis.study import examine

    call = Call("diagnose", options, SubjectOptions)
    evaluator = known_evaluator(evaluator)
    check_device_options(
        call,
        model,
        dumps=dumps,
        of_dumps={"--dump-format": dump_format, "--aliases": aliases, "--run": run},
        evaluator=evaluator,
        labels=labels,
    )
    check_subject(call, model)
    one_of(evaluator=evaluator, labels=labels)
    check_files(("The labels", labels))
    deadline = Deadline.after(time, start=call.started)
    subject = open_subject(call, model, required=False, explore=explore, deadline=deadline)
    if dumps is None:
        check_quantizers(subject)
    work = _Work(subject, evaluator, labels, dumps, aliases, run)
    settings = work.settings(deadline, tell)
    if dumps is not None:
        found = work.diagnose_device(dump_format, settings)
    else:
        found, _ = examine(subject.quantized, subject.samples, settings)
    work = replace(work, made=settings)
    return DiagnosisOutcome(found, work.document(found), _exit_code(found), work=work)


def _exit_code(found: "Diagnosis") -> int:
    reached = found.repair is not None and found.repair.reached
    return EXIT_OK if found.kind == "healthy" or reached else EXIT_THRESHOLD_MISSED


def check_device_options(
    call: Call, model: ModelLike | None, *, dumps: Any, of_dumps: Mapping[str, Any], evaluator: Any, labels: Any
) -> None:
    """Refuse options that would have no effect, and calls with nothing to look at.

    Raises:
        BadInput: There are some.
    """
    quantized, target = call.get("quantized"), call.get("target")
    if dumps is None:
        for option, value in of_dumps.items():
            if value is not None:
                raise BadInput(
                    english("{option} has no effect without --dumps.", option=option),
                    fix=english("add --dumps DIR, or leave it out"),
                )
        if quantized is None and target is None:
            raise BadInput(
                english("There is nothing to diagnose: neither a quantized model nor dumps were given."),
                fix=or_in_project(english("add --quantized FILE, --target NAME or --dumps DIR")),
            )
        return
    if model is None and quantized is None:
        raise BadInput(
            english("--dumps are compared with a model, and none was given."), fix=english("name the float model")
        )
    for name, value in zip(_QUANTIZING_ONLY, (evaluator, labels, target), strict=True):
        if value is not None:
            raise BadInput(
                "--{name} has no effect with --dumps, where each node is judged by its own inputs.",
                fix=english("leave --{name} out; or leave --dumps out to diagnose the quantization", name=name),
                name=name,
            )


def open_dumps(
    subject: Subject, dumps: Any, *, form: str | None = None, aliases: Any = None, run: str | None = None
) -> "tuple[TensorSource, KnownNames]":
    """The tensors that a device wrote, and what is known of their names.

    Args:
        subject: What the device was given.
        dumps: A file, a folder, arrays by name, or a source of tensors.
        form: Their format.
        aliases: Names in the dumps by those in the model, or a file of them.
        run: Of several runs in a folder, the one of this name.

    Raises:
        BadInput: The dumps cannot be read.
    """
    from roundoff.align.names import read_aliases
    from roundoff.diagnosis.devices.readout import KnownNames
    from roundoff.graph.quantized_model import dequantized_tensors
    from roundoff.graph.shapes import tensor_infos
    from roundoff.tensors import open_source
    from roundoff.tensors.stored import MappingSource

    source: TensorSource
    if is_path(dumps):
        infos = tensor_infos(subject.quantized.float_model)
        source = open_source(Path(dumps), format=form, shapes=infos, run=run)
    elif isinstance(dumps, Mapping):
        source = MappingSource(dumps, label="dumps")
    elif hasattr(dumps, "tensors") and hasattr(dumps, "read"):
        source = dumps
    else:
        what = english("The dumps are {said_of}.", said_of=describe_value(dumps))
        raise BadInput(what, fix=english("give a file or folder of tensors, or a dictionary of arrays"))
    known = {} if aliases is None else dict(aliases) if isinstance(aliases, Mapping) else read_aliases(aliases)
    origins = {} if subject.file is None else dequantized_tensors(subject.file)
    return source, KnownNames(aliases=known, origins=origins)


@dataclass(frozen=True, slots=True)
class _Work:
    """What was looked at, and what a repair goes on from.

    Attributes:
        subject: The model and what it was fed.
        evaluator: The user's measure, as it was given.
        labels: The right classes, as they were given.
        dumps: What a device wrote, as it was given.
        aliases: Names in the dumps, as they were given.
        run: The run among the dumps, as it was given.
        made: How the diagnosis was made.
    """

    subject: Subject
    evaluator: Any
    labels: Any
    dumps: Any
    aliases: Any
    run: str | None = None
    made: Any = None

    def settings(self, deadline: Deadline, tell: "Callable[[Check], None] | None") -> "DiagnoseSettings":
        """How to diagnose."""
        from roundoff.diagnosis.investigation import DiagnoseSettings
        from roundoff.messages.message import as_message, verbatim

        subject, call, made = self.subject, self.subject.call, self.subject.quantization
        planned = call.get("target") is None or call.get("set") or call.get("rules")
        told: dict[str, Any] = {} if tell is None else {"tell": tell}
        called = verbatim(str(self.dumps) if is_path(self.dumps) else "dumps")
        return DiagnoseSettings(
            arithmetic=subject.arithmetic,
            metric=self._metric(),
            threads=call.threads,
            max_memory=call.max_memory,
            progress=call.progress,
            subject=as_message(subject.words) if self.dumps is None else called,
            given=subject.file,
            # What was asked for each node, where a run of ours or the rules say so.
            plan=subject.plan if planned else None,
            deadline=deadline,
            opened_s=call.elapsed_s,
            target="" if subject.plan is None else subject.plan.target,
            judged=None if made is None else made.judgement,
            skipped=() if made is None else made.skipped,
            few_ranges=made is not None and made.calibration.too_few,
            **told,
        )

    def _metric(self) -> "TaskMetric | None":
        from roundoff.diagnosis.investigation import accuracy_metric, evaluator_metric

        subject, threads = self.subject, self.subject.call.threads
        evaluator = open_evaluator(self.evaluator)
        if evaluator is not None:
            return evaluator_metric(
                evaluator, subject.samples, threads=threads, max_memory=subject.call.max_memory
            )
        labels, cut = open_labels(self.labels, subject.samples.names), subject.call.get("samples") is not None
        return None if labels is None else accuracy_metric(labels, subject.samples, threads=threads, cut=cut)

    def diagnose_device(self, form: str | None, settings: "DiagnoseSettings") -> "Diagnosis":
        """Diagnose the device that wrote the dumps."""
        from roundoff.diagnosis.devices.study import diagnose_device

        subject, quantized = self.subject, self.subject.call.get("quantized")
        if quantized is not None and not subject.quantized.quantizers:
            what = english(
                "{words} has no quantizers, so it says nothing of what the device computes.", words=subject.words
            )
            fix = english("give the quantized model that the device was given, or leave --quantized out")
            raise BadInput(what, fix=fix)
        dumps, names = open_dumps(subject, self.dumps, form=form, aliases=self.aliases, run=self.run)
        return diagnose_device(subject.quantized, subject.samples, dumps, settings=settings, names=names)

    def document(self, found: "Diagnosis") -> "RunDocument":
        """The run document of a diagnosis."""
        more: list[InputFile] = list(file_inputs(("evaluator", self.evaluator), ("labels", self.labels)))
        if isinstance(self.dumps, Mapping):
            more.append(array_input("dumps", [self.dumps]))
        more += file_inputs(("dumps", self.dumps), ("aliases", self.aliases))
        network = drawn_topology(self.subject.quantized.float_model)
        return self.subject.call.document((*self.subject.inputs(), *more), network, diagnosis=found)

    def repair(
        self,
        found: "Diagnosis",
        *,
        test_data: DataLike,
        test_labels: LabelsLike,
        on_trial: "Callable[[Trial, Trial, str], None] | None",
        tell: Callable[[str], None] | None,
    ) -> "Fixed | None":
        """Repair what was diagnosed, from what was read and run for it."""
        from roundoff.diagnosis.repair import RepairSource, wants_repair

        if self.dumps is not None:
            what = english("--fix repairs quantized models; what is wrong on a device is not in the model.")
            raise BadInput(what, fix=english("leave --fix out; or leave --dumps out to repair the quantization"))
        test = self._test(test_data, test_labels)
        if not wants_repair(found):
            return None
        from roundoff.api.search import judge_options
        from roundoff.messages.message import shown
        from roundoff.search.repair import RepairSearch, repair_diagnosis

        subject = self.subject
        names = subject.samples.names
        labels = open_labels(self.labels, names, cut=subject.call.get("samples") is not None)
        source = RepairSource(
            subject.quantized,
            subject.samples,
            subject.model,
            labels=labels,
            test=test,
        )
        made = subject.quantization
        if made is not None:
            source = replace(source, builder=made.builder, recipe=made.best.recipe)
        elif subject.plan is not None:
            source = replace(source, target=subject.plan.target)
        judged = self.evaluator is not None or labels is not None
        limits = subject.call.limits
        judge = judge_options(
            self.evaluator,
            labels=labels,
            decibels=not judged,
            threads=limits.threads,
            max_memory=limits.max_memory,
        )
        search = RepairSearch(judge, on_trial=on_trial)
        if tell is not None:
            search = replace(search, tell=lambda text: tell(shown(text)))
        return repair_diagnosis(found, source, self.made, search)

    def _test(self, data: DataLike, labels: LabelsLike) -> "tuple[Samples, TaskMetric | None] | None":
        """Other samples to judge a repair on, with the user's metric on them; None where none are given."""
        from roundoff.diagnosis.investigation import accuracy_metric, evaluator_metric
        from roundoff.graph.interface import inputs

        subject = self.subject
        if data is None:
            if labels is not None:
                what = english("--test-labels has no effect without --test-data.")
                raise BadInput(what, fix=english("add --test-data, or leave it out"))
            return None
        if (self.labels is None) != (labels is None):
            what = english("Only one of --labels and --test-labels was given.")
            raise BadInput(what, fix=english("give both, or none"))
        model, call = subject.quantized.float_model, subject.call
        words = [data] if is_path(data) else data
        samples = open_data(words, inputs(model), call.sample_options(limit=None))
        check_apart(model, subject.samples, samples)
        evaluator, right = open_evaluator(self.evaluator), open_labels(labels, samples.names)
        if evaluator is not None:
            # A function of the user's sees them numbered on behind the others, so that its lists can go on.
            first = len(subject.samples.names)
            both = JoinedSamples(subject.samples, samples)
            whole = evaluator_metric(evaluator, both, threads=call.threads, max_memory=call.max_memory)
            return samples, whole.on(range(first, first + len(samples.names)))
        return samples, None if right is None else accuracy_metric(right, samples, threads=call.threads)

    def write_model(self, fixed: "Fixed", folder: Path, *, sha256: str) -> list[str]:
        """Write the repaired model and its plan; the names of the files.

        Args:
            fixed: The repair.
            folder: Where it goes.
            sha256: Hash of the model that was repaired.
        """
        from roundoff import __version__
        from roundoff.messages.message import message
        from roundoff.quantize.plan_file import PLAN_NAME, PlanOrigin, write_quantized

        subject = self.subject
        origin = PlanOrigin(
            model=str(subject.origin),
            model_sha256=sha256,
            prefix=model_stem(subject.origin),
            arithmetic=subject.arithmetic,
            samples=len(subject.samples.names),
            version=__version__,
        )
        notes = (message("quantize.repaired_by", file=origin.model),)
        saved = write_quantized(folder, fixed.quantized, origin, plan=fixed.plan, method=fixed.method, notes=notes)
        return [*dict.fromkeys(saved.files.values()), PLAN_NAME]

    def in_dialects(self, fixed: "Fixed", dialects: tuple[str, ...]) -> "ToolSettings":
        """What was repaired, in the words of other tools."""
        from roundoff.vendors.dialects import find_dialects
        from roundoff.vendors.dialects.settings import Made, decisions_of, float_model_name, settings_for

        subject, stem = self.subject, model_stem(self.subject.origin)
        made = Made.by_plan(
            fixed.plan,
            stem=stem,
            method=fixed.method,
            samples=len(subject.samples.names),
            graph=float_model_name(stem, subject.model, fixed.quantized.float_model),
        )
        decided = decisions_of(fixed.quantized, made)
        return settings_for(decided, find_dialects(",".join(dialects)), given=subject.model)
