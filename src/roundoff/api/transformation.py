"""Changing a model so that it quantizes better, as a function."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Unpack

from roundoff.api.call import Call, QuantizeOptions, names_in, one_of, public
from roundoff.api.inputs import (
    DataLike,
    EvaluatorLike,
    LabelsLike,
    ModelLike,
    PathLike,
    as_path,
    data_inputs,
    file_inputs,
    is_path,
    open_data,
    open_evaluator,
    open_labels,
    open_model,
)
from roundoff.api.outcome import Outcome
from roundoff.api.subject import fewer_samples, quantize_settings, samples_for
from roundoff.core.files import model_stem, output_directory, write_text
from roundoff.errors import EXIT_OK, EXIT_THRESHOLD_MISSED, BadInput, nearest
from roundoff.graph.interface import topology
from roundoff.messages.message import english
from roundoff.quantize.step_report import TransformReport

if TYPE_CHECKING:
    from roundoff.core.plan import Step
    from roundoff.graph.load import Model
    from roundoff.graph.quantized_model import QuantizedModel
    from roundoff.run.capture import Samples
    from roundoff.studies.transform.study import Judge

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


class TransformOptions(QuantizeOptions, total=False):
    """The chip, and what the model is fed."""

    target: Any


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
    **options: Unpack[TransformOptions],
) -> TransformOutcome:
    """Change a model so that it quantizes better, and prove that it does.

    Args:
        model: The float model.
        steps: What to do: ``smooth``, ``equalize``, ``explicit-bias``, ``round``, ``bias-correct``.
        option: Options of steps, as ``alpha`` or ``smooth.alpha`` for one step alone.
        nodes: Limit the steps to these nodes.
        test: Other samples to judge on.
        labels: Right classes of these samples.
        evaluator: The user's own measure.
        options: The chip, how to quantize, and what the model is fed.
    """
    from roundoff.studies.transform.study import try_steps

    call = Call("transform", options, TransformOptions)
    one_of(labels=labels, evaluator=evaluator)
    if call.get("target") is None:
        raise BadInput(english("No chip to quantize for was given."), fix=english("add --target NAME"))
    asked = _steps(steps, option, names_in(nodes))
    settings = quantize_settings(call)
    measure = open_evaluator(evaluator)
    given = open_model(model)
    fed = samples_for(call, given.model)
    judge = replace(_judge(call, given.model, fed, test, labels), evaluator=measure)
    trial = try_steps(given.model, fed, asked, settings=settings, judge=judge, progress=call.progress)
    notes = (*fewer_samples(call, fed), *trial.report.notes)
    trial = replace(trial, report=replace(trial.report, notes=notes))
    target = call.get("target")
    read = [given.origin("model")]
    read += file_inputs(("rules", call.get("rules")), ("labels", labels), ("evaluator", evaluator))
    read += file_inputs(("target", target)) if is_path(target) and Path(target).is_file() else ()
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
            english("--option {text}: {step!r} is none of the steps.", text=text, step=step),
            fix=nearest(step, names),
        )
    options = [option for name in names if step in ("", name) for option in known[name]]
    if key not in options:
        fix = nearest(key, options) if options else english("leave it out, the steps have no options")
        raise BadInput(
            english("--option {text}: none of the steps has an option {key!r}.", text=text, key=key), fix=fix
        )
    return step, key, value.strip()


def _judge(call: Call, model: "Model", fed: "Samples", test: DataLike, labels: LabelsLike) -> "Judge":
    from roundoff.graph.interface import inputs
    from roundoff.studies.transform.study import Judge

    unseen = test is not None
    if unseen:
        words = [test] if is_path(test) else test
        fed = open_data(words, inputs(model), call.sample_options(limit=None))
    cut = call.get("samples") is not None and not unseen
    return Judge(fed, unseen, open_labels(labels, fed.names, cut=cut))
