"""Making quantized models and looking at them: quantize, transform, targets, audit, export_settings."""

import contextlib
import fnmatch
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from roundoff.api.call import Call, Limits, TargetOptions, names_in, one_of, public, words_in
from roundoff.api.inputs import (
    DataLike,
    EvaluatorLike,
    GivenModel,
    LabelsLike,
    ModelLike,
    PathLike,
    as_path,
    data_inputs,
    describe_value,
    file_inputs,
    is_path,
    known_evaluator,
    open_data,
    open_evaluator,
    open_labels,
    open_model,
    own_inputs,
)
from roundoff.api.outcome import Outcome, PageOutcome
from roundoff.api.subject import (
    QuantizedLike,
    check_target,
    check_weights,
    fewer_samples,
    notes_on_samples,
    open_stored,
    quantize_settings,
    samples_for,
    target_of,
)
from roundoff.core.files import model_files, model_stem, output_directory, write_text
from roundoff.errors import EXIT_OK, EXIT_THRESHOLD_MISSED, BadInput, nearest
from roundoff.graph.interface import topology
from roundoff.messages.catalogue import plain
from roundoff.messages.message import english
from roundoff.quantize.pipeline import Quantization
from roundoff.quantize.step_report import TransformReport

if TYPE_CHECKING:
    from roundoff.core.plan import Step
    from roundoff.core.target import Target
    from roundoff.graph.load import Model
    from roundoff.graph.quantized_model import QuantizedModel
    from roundoff.run.capture import Samples
    from roundoff.studies.audit.result import Audit
    from roundoff.studies.transform.study import Judge
    from roundoff.vendors.dialects.settings import Decisions, ToolSettings


_STATISTICS_NAME = "calibration.npz"


@dataclass(frozen=True, slots=True, repr=False)
class QuantizationOutcome(PageOutcome[Quantization]):
    """A quantized model, and how its outputs agree with those of the float one.

    Attributes:
        given: The float model.
    """

    given: Any = None

    @property
    def quantized(self) -> "QuantizedModel":
        """The float model and its quantizers; what other functions take as ``quantized=``."""
        return self.result.quantized

    @public
    def save(self, directory: PathLike, *, prefix: str | None = None, force: bool = False) -> tuple[Path, ...]:
        """Write the models, plan.json with all decisions and scales, and the statistics.

        Args:
            directory: The folder; it appears whole or not at all.
            prefix: Start of the models' names; that of the float model when None.
            force: Replace an earlier quantization.
        """
        from roundoff import __version__
        from roundoff.core.document import RECORD_NAME, to_json
        from roundoff.graph.save import save_model
        from roundoff.quantize.calibration.files import save_calibration
        from roundoff.quantize.plan_file import (
            CORRECTED,
            PLAN_NAME,
            PLAN_SCHEMA,
            SavedPlan,
            plan_json,
            saved_numbers,
        )

        result, origin, folder = self.result, self.document.inputs[0], as_path(directory, option="-o")
        start = file_prefix(self.given.path, prefix)
        files = {"fake_quant": f"{start}_fake_quant_model.onnx", "deploy": f"{start}_deploy_model.onnx"}
        if result.target.weight_block:
            files[CORRECTED] = files["deploy"]  # scales belong to blocks, which the float model has not
        saved = SavedPlan(
            schema=PLAN_SCHEMA,
            roundoff=__version__,
            model=str(self.given.path),
            model_sha256=origin.sha256,
            method=result.best.method,
            samples=result.calibration.samples,
            arithmetic=result.target.arithmetic,
            plan=result.best.plan,
            numbers=saved_numbers(result.best.numbers),
            files=files,
            notes=result.notes,
        )
        with output_directory(folder, marker=PLAN_NAME, force=force) as staged:
            save_model(result.fake_quant_model(), staged / files["fake_quant"])
            save_model(result.deploy_model(), staged / files["deploy"])
            save_calibration(result.calibration, staged / _STATISTICS_NAME, model_hash=origin.sha256)
            write_text(staged / PLAN_NAME, plan_json(saved))
            write_text(staged / RECORD_NAME, to_json(self.document))
        return tuple(
            folder / name for name in (*dict.fromkeys(files.values()), _STATISTICS_NAME, PLAN_NAME, RECORD_NAME)
        )


def file_prefix(model: Path, prefix: str | None) -> str:
    """How names of files start.

    Raises:
        BadInput: No file can be called so.
    """
    found = model_stem(model) if prefix is None else prefix
    if not found or Path(found).name != found:
        raise BadInput(
            english("--prefix {found!r} is not the start of a file name.", found=found),
            fix=english("give a name without slashes"),
        )
    return found


@public
def quantize(
    model: ModelLike,
    *,
    statistics: PathLike | None = None,
    dask: str | None = None,
    **options: Unpack[TargetOptions],
) -> QuantizationOutcome:
    """Quantize a float model the way a chip's toolchain would.

    Args:
        model: The float model.
        statistics: Take what an earlier run observed; data then only serves to compare outputs.
        dask: Address of a Dask scheduler, whose workers observe activations; ``local`` to start a cluster here.
        options: The chip, how to quantize for it, and what the model is fed.
    """
    from roundoff.graph.interface import inputs
    from roundoff.measure.verdicts import usual_limits
    from roundoff.quantize.calibration.files import load_calibration
    from roundoff.quantize.page import quantization_page
    from roundoff.quantize.pipeline import quantize_model
    from roundoff.run.capture import NO_INPUTS

    call = Call("quantize", options, TargetOptions)
    one_of(statistics=statistics, dask=dask)
    check_target(call)
    settings = quantize_settings(call)
    given = open_model(model)
    check_weights(call, given, kind="quantize")
    specs, origin = inputs(given.model), given.origin("model")
    observed = None
    if statistics is not None:
        observed = load_calibration(as_path(statistics, option="--statistics"), model_hash=origin.sha256)
    data = call.get("data")
    samples: Samples | None = None if specs else NO_INPUTS
    if (data is not None and not (isinstance(data, list) and not data)) or (specs and observed is None):
        samples = samples_for(call, given.model)
    with contextlib.ExitStack() as held:
        observe = None
        if dask is not None:
            from roundoff.api import remote

            observe = held.enter_context(remote.observed_in_cluster(dask, call))
        found = quantize_model(
            given.model, samples, settings, calibration=observed, observe=observe, progress=call.progress
        )
    found = replace(found, on_samples=notes_on_samples(call, given.model, samples))
    target = call.get("target")
    read = [origin, *file_inputs(("rules", call.get("rules")), ("statistics", statistics))]
    read += own_inputs(("target", target))
    read += data_inputs("data", data, samples)
    name = model_files(given.path)[0].name
    page = quantization_page(found, usual_limits(), model=name)
    judgement = None if found.best.judged is None else found.best.judged.judgement
    code = EXIT_OK if judgement is None or judgement.good else EXIT_THRESHOLD_MISSED
    return QuantizationOutcome(found, call.document(read, judgement=judgement), code, shown=page, given=given)


@public
def targets(target: Any = None) -> "PageOutcome[tuple[Target, ...]]":
    """List the chips to quantize for, or one of them.

    Args:
        target: The name of one, or the path of a TOML file; all that are shipped when None.
    """
    from roundoff.quantize.page import target_page, targets_page
    from roundoff.quantize.targets.files import load_target, target_names

    call = Call("targets", {}, Limits)
    found = tuple(map(load_target, target_names())) if target is None else (target_of(target),)
    page = targets_page(found) if target is None else target_page(found[0])
    read = own_inputs(("target", target))
    return PageOutcome(found, call.document(read), shown=page)


# Settings of other tools.


@dataclass(frozen=True, slots=True, repr=False)
class SettingsOutcome(PageOutcome["ToolSettings"]):
    """A quantization in the words of other tools.

    Attributes:
        model: The float model that names and scales belong to.
        model_name: Name of its file; empty where it is the user's own.
    """

    model: Any = None
    model_name: str = ""

    @public
    def save(self, directory: PathLike, *, force: bool = False) -> tuple[Path, ...]:
        """Write the files of all tools, and what they could not say."""
        from roundoff.graph.save import save_model
        from roundoff.vendors.dialects.settings import SETTINGS_NAME

        files = self.result.files()
        with output_directory(as_path(directory, option="-o"), marker=SETTINGS_NAME, force=force) as staged:
            for name, text in files.items():
                write_text(staged / name, text)
            if self.model_name:
                save_model(self.model, staged / self.model_name)
        names = [*files, *([self.model_name] if self.model_name else [])]
        return tuple(Path(directory) / name for name in names)


@public
def export_settings(
    source: QuantizedLike,
    *,
    dialect: Any = "all",
    model: ModelLike | None = None,
    tell: Callable[[str], None] | None = None,
) -> SettingsOutcome:
    """Write what a quantization decided as settings of other tools.

    Args:
        source: A folder that quantize, tune or a repair wrote, or a quantized model of any tool.
        dialect: The tools, or ``all``.
        model: The float model it was made from.
        tell: Told what the reader should know.
    """
    from roundoff.vendors.dialects import find_dialects
    from roundoff.vendors.dialects.settings import settings_for

    call = Call("export_settings", {}, Limits)
    dialects = find_dialects(",".join(words_in(dialect, option="--dialect")))
    given = None if model is None else open_model(model)
    decisions, known = _decided(source, given, tell or (lambda _: None))
    settings = settings_for(decisions, dialects, given=known)
    page = _settings_page(settings)
    read = (*file_inputs(("quantized", source)), *(() if given is None else (given.origin("model"),)))
    return SettingsOutcome(
        settings,
        call.document(read),
        shown=page,
        model=decisions.quantized.float_model,
        model_name=decisions.made.graph,
    )


def _settings_page(settings: "ToolSettings") -> Any:
    from roundoff.pages.blocks import Column, Page, TableBlock

    columns = tuple(
        Column(name, plain(name), "text") for name in ("tool", "files", "said", "not_expressible", "use")
    )
    rows = tuple(
        (name, ", ".join(each.files), each.said, "; ".join(each.missing), each.use)
        for name, each in settings.written.items()
    )
    return Page("settings", plain("settings"), (TableBlock("settings", plain("settings"), columns, rows),))


def _decided(
    source: QuantizedLike, given: GivenModel | None, tell: Callable[[str], None]
) -> "tuple[Decisions, Model | None]":
    """What was decided, and the float model as the user gave it, where that is known."""
    from roundoff.graph.quantized_model import QuantizedModel
    from roundoff.graph.readers.reader import read_quantized
    from roundoff.vendors.dialects.settings import Made, decisions_of, float_model_name

    if is_path(source) and Path(source).is_dir():
        return _decided_in(Path(source), given, tell)
    known = None if given is None else given.model
    if isinstance(source, QuantizedModel):
        quantized, stem = source, source.float_model.path.stem
    else:
        file = open_model(source, what=english("The quantized model"))
        quantized, stem = read_quantized(file.model, float_model=known), model_stem(file.path)
    if not quantized.quantizers:
        called = str(source) if is_path(source) else english("what is {said_of}", said_of=describe_value(source))
        raise BadInput(
            english("Nothing in {called} is quantized.", called=called),
            fix=english("give a quantized model, or a folder with plan.json"),
        )
    made = Made(stem, graph=float_model_name(stem, known, quantized.float_model))
    return decisions_of(quantized, made), known


def _decided_in(
    folder: Path, given: GivenModel | None, tell: Callable[[str], None]
) -> "tuple[Decisions, Model | None]":
    from roundoff.quantize.plan_file import PLAN_NAME, load_plan
    from roundoff.vendors.dialects.settings import Made, decisions_of, float_model_name

    if not (folder / PLAN_NAME).is_file():
        what = english(
            "{folder} has no {plan_name}: nothing was quantized there.", folder=folder, plan_name=PLAN_NAME
        )
        raise BadInput(
            what, fix=english("give a folder that quantize, tune or diagnose --fix wrote, or a quantized .onnx")
        )
    saved = load_plan(folder)
    own = folder / saved.files["float"] if "float" in saved.files else Path(saved.model)
    source = given if given is not None else open_model(own) if own.is_file() else None
    if source is None:
        tell(f"note: {saved.model} is not there; the float model is read from the quantized one (--model)")
    stored = open_stored(folder, source)
    # A float model in the folder is one that was made there: what the user had is another.
    known = None if "float" in saved.files else stored.model
    stem = model_stem(Path(saved.model)).removesuffix("_float_model")
    graph = float_model_name(stem, known, stored.quantized.float_model)
    made = Made.by_plan(saved.plan, stem=stem, method=saved.method, samples=saved.samples, graph=graph)
    return decisions_of(stored.quantized, made), known


# What a quantized model really holds.


@public
def audit(
    subject: QuantizedLike,
    *,
    float_model: ModelLike | None = None,
    target: Any = None,
    nodes: str | Sequence[str] | None = None,
    notes: bool = True,
) -> "Outcome[Audit]":
    """Say for every node which precision was asked for and which it really has.

    Args:
        subject: A folder that `quantize` wrote, or a quantized model of any tool.
        float_model: The float model it was made from; nodes get its names.
        target: Judge by what this target would make of the float model.
        nodes: Only nodes whose names match.
        notes: Repeat what was told when a run was made.
    """
    call = Call("audit", {}, Limits)
    read = [("model", subject)] if is_path(subject) else []
    if is_path(subject) and (Path(subject).is_dir() or Path(subject).suffix.lower() == ".json"):
        given = [flag for flag, value in (("--float", float_model), ("--target", target)) if value]
        if given:
            what = english(
                "{given} was given, but {subject} is a run, which has its own plan.",
                given=given[0],
                subject=subject,
            )
            raise BadInput(what, fix=english("leave {given} out, or give one of the run's models", given=given[0]))
        found = _audit_run(Path(subject), notes=notes)
    else:
        found = _audit_model(subject, float_model, target)
    found = _matching(found, None if nodes is None else names_in(nodes))
    files = (*file_inputs(*read, ("float", float_model)), *own_inputs(("target", target)))
    code = EXIT_OK if found.passed else EXIT_THRESHOLD_MISSED
    return Outcome(found, call.document(files, audit=found), code)


def _audit_run(path: Path, *, notes: bool) -> "Audit":
    """The audit of a run; what its user was told when it was made is told again on request."""
    from roundoff.graph.load import load_model
    from roundoff.graph.readers.reader import read_quantized
    from roundoff.quantize.plan_file import CORRECTED, PLAN_NAME, load_plan
    from roundoff.studies.audit.study import audit_run

    folder = path if path.is_dir() else path.parent
    if path.is_dir() and not (path / PLAN_NAME).is_file():
        what = english(
            "{path} has no {plan_name}, so it is no run of 'roundoff quantize'.", path=path, plan_name=PLAN_NAME
        )
        raise BadInput(what, fix=english("give the folder that 'roundoff quantize -o' wrote, or an .onnx model"))
    saved = load_plan(path)
    names = {"fake_quant": "fake-quant model", "deploy": "deploy model"}
    models = {
        name: read_quantized(load_model(folder / saved.files[kind]))
        for kind, name in names.items()
        if kind in saved.files
    }
    if not models:
        raise BadInput(
            "{path} names no models.", fix=english("write the run again with 'roundoff quantize'"), path=path
        )
    corrected = CORRECTED in saved.files
    found = audit_run(saved.plan, saved.quantizers(), models, subject=str(path), corrected=corrected)
    return replace(found, notes=(*found.notes, *map(str, saved.notes))) if notes else found


def _audit_model(subject: QuantizedLike, float_model: ModelLike | None, target: Any) -> "Audit":
    from roundoff.graph.quantized_model import QuantizedModel
    from roundoff.graph.readers.reader import read_quantized
    from roundoff.quantize.planning.planner import plan_quantization
    from roundoff.studies.audit.study import audit_against, audit_model

    chip = None if target is None else target_of(target)
    source = None if float_model is None else open_model(float_model, what=english("The float model")).model
    if isinstance(subject, QuantizedModel):
        model, called = subject, f"({type(subject).__name__})"
    else:
        given = open_model(subject, what=english("The quantized model"))
        model, called = read_quantized(given.model, float_model=source), str(given.path)
    if not model.quantizers and not model.oddities:
        raise BadInput(
            english("{called} is not quantized: no quantizer of a known kind was found in it.", called=called),
            fix=english(
                "give a model with QuantizeLinear and DequantizeLinear nodes, or of another dialect "
                "listed in 'roundoff explain quantized-models.md'"
            ),
        )
    if chip is None:
        return audit_model(model, subject=called)
    return audit_against(model, plan_quantization(model.float_model, chip), subject=called)


def _matching(found: "Audit", globs: Sequence[str] | None) -> "Audit":
    """Only the rows that were asked for."""
    if globs is None:
        return found
    names = [row.node for row in found.rows]

    def matches(name: str, pattern: str) -> bool:
        # Names may hold brackets, which a pattern would read as choices.
        return name == pattern or fnmatch.fnmatchcase(name, pattern)

    for pattern in globs:
        if not any(matches(name, pattern) for name in names):
            raise BadInput(
                english(
                    "--nodes {pattern!r} matches no node of {subject}.", pattern=pattern, subject=found.subject
                ),
                fix=nearest(pattern, names),
            )
    rows = tuple(row for row in found.rows if any(matches(row.node, pattern) for pattern in globs))
    return replace(found, rows=rows, findings=())


# Changing a model so that it quantizes better, as a function.

# What users call what is registered under another name.
_STEP_NAMES = {"round": "round_weights"}


@dataclass(frozen=True, slots=True, repr=False)
class TransformOutcome(Outcome[TransformReport]):
    """What steps brought, and the models they made.

    Attributes:
        trial: The quantized model as it is now.
        target: The chip.
        stem: How names of files start.
    """

    trial: Any = None
    target: Any = None
    stem: str = "model"

    @property
    def quantized(self) -> "QuantizedModel":
        """The quantized model: changed where that helped."""
        found: QuantizedModel = self.trial.quantized
        return found

    @public
    def save(self, directory: PathLike, *, force: bool = False) -> tuple[Path, ...]:
        """Write the float model, the quantized ones, their plan and the run document."""
        from roundoff import __version__
        from roundoff.core.document import DOCUMENT_NAME
        from roundoff.quantize.plan_file import PLAN_NAME, PlanOrigin, write_quantized
        from roundoff.report.pages import run_files

        built, given, folder = self.trial.built, self.document.inputs[0], as_path(directory, option="-o")
        origin = PlanOrigin(
            model=given.path,
            model_sha256=given.sha256,
            prefix=self.stem,
            arithmetic=self.target.arithmetic,
            samples=built.calibration.samples,
            version=__version__,
        )
        files = run_files(self.document)
        with output_directory(folder, marker=DOCUMENT_NAME, force=force) as staged:
            saved = write_quantized(
                staged, built.quantized, origin, plan=built.plan, method=self.result.method, notes=built.notes
            )
            for name, text in files.items():
                write_text(staged / name, text)
        return tuple(folder / name for name in (*dict.fromkeys(saved.files.values()), PLAN_NAME, *files))

    @property
    def fake_quant_name(self) -> str:
        """Name of the file with the quantized model that onnxruntime runs."""
        return f"{self.stem}_fake_quant_model.onnx"


@public
def transform(
    model: ModelLike,
    steps: str | Sequence[str],
    *,
    option: Mapping[str, Any] | Sequence[str] = (),
    nodes: str | Sequence[str] = (),
    test: DataLike = None,
    labels: LabelsLike = None,
    evaluator: EvaluatorLike | None = None,
    **options: Unpack[TargetOptions],
) -> TransformOutcome:
    """Change a model so that it quantizes better, and prove that it does.

    Args:
        model: The float model.
        steps: What to do: ``smooth``, ``equalize``, ``explicit-bias``, ``round``, ``bias-correct``.
        option: Options of steps, as ``alpha`` or ``smooth.alpha`` for one step alone.
        nodes: Limit the steps to these nodes.
        test: Other samples to judge on; about a third of the data is held out for it by default.
        labels: Right classes of these samples.
        evaluator: The user's own measure.
        options: The chip, how to quantize, and what the model is fed.
    """
    from roundoff.studies.transform.study import try_steps

    call = Call("transform", options, TargetOptions)
    one_of(labels=labels, evaluator=evaluator)
    check_target(call)
    asked = _steps(steps, option, names_in(nodes))
    settings = quantize_settings(call)
    evaluator = known_evaluator(evaluator)
    measure = open_evaluator(evaluator)
    given = open_model(model)
    fed = samples_for(call, given.model)
    used, judge = _judge(call, given.model, fed, test, labels)
    judge = replace(judge, evaluator=measure)
    trial = try_steps(given.model, used, asked, settings=settings, judge=judge, progress=call.progress)
    notes = (*fewer_samples(call, fed), *trial.report.notes)
    trial = replace(trial, report=replace(trial.report, notes=notes))
    target = call.get("target")
    read = [given.origin("model")]
    read += file_inputs(("rules", call.get("rules")), ("labels", labels), ("evaluator", evaluator))
    read += own_inputs(("target", target))
    read += data_inputs("data", call.get("data"), fed)
    read += () if test is None else data_inputs("data", [test] if is_path(test) else test, judge.samples)
    document = call.document(read, topology(given.model), transform=trial.report)
    code = EXIT_OK if trial.report.good else EXIT_THRESHOLD_MISSED
    stem = model_stem(given.path)
    return TransformOutcome(trial.report, document, code, trial=trial, target=settings.target, stem=stem)


def _steps(given: str | Sequence[str], option: Any, nodes: tuple[str, ...]) -> "list[Step]":
    """The steps with their options, checked before anything runs."""
    from roundoff.core.plan import Step
    from roundoff.quantize.steps import all_corrections, all_transforms
    from roundoff.studies.transform.study import check_steps

    known = {each.name: tuple(each.options) for each in all_transforms()}
    known |= {each.name: tuple(each.options) for each in all_corrections()}
    words = [word.strip() for word in given.split(",")] if isinstance(given, str) else list(names_in(given))
    names = [_STEP_NAMES.get(word, word).replace("-", "_") for word in words]
    shown = [name for name in known if name not in _STEP_NAMES.values()] + list(_STEP_NAMES)
    for word, name in zip(words, names, strict=True):
        if name not in known:
            what = english("There is no step {word!r}.", word=word)
            raise BadInput(what, fix=nearest(word, [each.replace("_", "-") for each in shown]))
    # Corrections have nowhere to go in a layer without a bias.
    if "bias_correct" in names and "explicit_bias" not in names:
        names.insert(0, "explicit_bias")
    texts = [f"{key}={value}" for key, value in option.items()] if isinstance(option, Mapping) else option
    said = [_step_option(text, names, known) for text in texts]
    steps = []
    for name in names:
        own = {key: value for step, key, value in said if step in ("", name) and key in known[name]}
        steps.append(Step(name, tuple(sorted(own.items())), nodes))
    check_steps(steps)
    return steps


def _step_option(text: str, names: Sequence[str], known: "dict[str, tuple[str, ...]]") -> tuple[str, str, str]:
    """Which step an option is for (empty for all that have it), its name and its value."""
    left, separator, value = text.partition("=")
    if not separator or not left.strip():
        raise BadInput(
            english("--option {text!r} is not of the form KEY=VALUE.", text=text),
            fix=english("write it as in --option alpha=0.7"),
        )
    step, dot, key = left.strip().replace("-", "_").rpartition(".")
    step = _STEP_NAMES.get(step, step) if dot else ""
    if step and step not in names:
        raise BadInput(
            "--option {text}: {step!r} is none of the steps.", fix=nearest(step, names), text=text, step=step
        )
    options = [option for name in names if step in ("", name) for option in known[name]]
    if key not in options:
        fix = nearest(key, options) if options else english("leave it out, the steps have no options")
        raise BadInput("--option {text}: none of the steps has an option {key!r}.", fix=fix, text=text, key=key)
    return step, key, value.strip()


def _judge(
    call: Call, model: "Model", fed: "Samples", test: DataLike, labels: LabelsLike
) -> "tuple[Samples, Judge]":
    """What steps may use, and what decides: samples of the user's for this alone, else some that are held out."""
    from roundoff.graph.interface import inputs
    from roundoff.studies.transform.study import Judge, hold_out

    if test is None:
        return hold_out(fed, open_labels(labels, fed.names, cut=call.get("samples") is not None))
    words = [test] if is_path(test) else test
    others = open_data(words, inputs(model), call.sample_options(limit=None))
    return fed, Judge(others, unseen=True, labels=open_labels(labels, others.names, cut=False))
