"""The vendor's guide walked on the data at hand: which step loses the accuracy, where, and what to do next."""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from roundoff.core.array_files import Unreadable
from roundoff.core.progress import Progress
from roundoff.errors import BadInput
from roundoff.messages.message import english
from roundoff.tensors import open_source
from roundoff.vendors.ascend.comparison import ComparisonResult, Request, between_text, compare_network, fault_text
from roundoff.vendors.ascend.culprits import Located, TensorLimits, locate, number
from roundoff.vendors.ascend.errors import Code, Refused, profile_limits
from roundoff.vendors.ascend.folders import open_folder
from roundoff.vendors.ascend.rules import DEQUANT_NAME, Warn
from roundoff.vendors.ascend.scales import ScaleFiles, widths
from roundoff.vendors.ascend.scenarios import RuleFiles

_ACCEPTED, _LARGE = 1.0, 3.0
"""Losses of accuracy in per cent that the guide tells apart."""

_WHOLE = 100.0

_LOSS = english("loss of accuracy")
_CALIBRATION = english("calibration set")
_QUANTIZATION = english("quantization (fake-quant against float original)")
_CONVERSION = english("conversion (offline without fusion against fake-quant)")
_FUSION = english("fusion (offline with against without fusion)")
_WHOLE_MODEL = english("as a whole (offline against float original)")

_FEWEST, _MOST = 10, 100
"""Samples that a calibration set should have."""

_BEYOND = 0.1
"""How far an input may reach beyond the range of the calibration set."""


@dataclass(frozen=True, slots=True)
class GuideInput:
    """What there is to look at; everything may be missing but one comparison.

    Attributes:
        floats: Golden data of the float original.
        fakes: Golden data of the fake-quant original.
        npu: Dump of the offline model.
        unfused: Dump of the offline model without fusion.
        offline_rule: JSON of the offline model.
        unfused_rule: JSON of the offline model without fusion.
        quant_rule: JSON of AMCT.
        float_accuracy: Accuracy of the float original in per cent.
        quant_accuracy: Accuracy of the quantized model in per cent.
        calibration: A number of samples, or a folder of them.
        record: AMCT's record.
        deploy: The model that was compiled.
        replay: A model to compute operators again with; the deploy model, where there is one, else none.
    """

    floats: Path | None = None
    fakes: Path | None = None
    npu: Path | None = None
    unfused: Path | None = None
    offline_rule: Path | None = None
    unfused_rule: Path | None = None
    quant_rule: Path | None = None
    float_accuracy: float | None = None
    quant_accuracy: float | None = None
    calibration: str = ""
    record: Path | None = None
    deploy: Path | None = None
    replay: Path | None = None

    @property
    def scale_files(self) -> ScaleFiles:
        """What tells scales, given or found."""
        return ScaleFiles(self.record, self.deploy, self.quant_rule).found()


@dataclass(frozen=True, slots=True)
class GuideStep:
    """One step of the guide.

    Attributes:
        title: What was looked at.
        verdict: What was found, in one sentence.
        advice: What to do next; empty when nothing is needed.
        bad: Whether something is wrong here.
        skipped: Whether it could not be looked at.
        noted: Whether something differs here that needs no attention.
    """

    title: str
    verdict: str
    advice: str = ""
    bad: bool = False
    skipped: bool = False
    noted: bool = False


def walk(given: GuideInput, *, out: Path, warn: Warn, progress: Progress) -> list[GuideStep]:
    """Walk all steps that the data allow, in the guide's order.

    Args:
        given: What there is.
        out: Folder for the tables of the comparisons.
        warn: Told of what is odd.
        progress: Told how far it is.

    Raises:
        Refused: There is nothing to compare.
    """
    steps = list(_before(given))
    accepted = any(step.title == _LOSS and not step.bad for step in steps)
    compared = False
    usual: dict[str, float] = {}
    for title, request, advise in _comparisons(given, out):
        compared = True
        request = replace(request, limits=_limits(title, given, usual))  # noqa: PLW2901 - with what is known by now
        try:
            result = compare_network(request, warn=warn, progress=progress)
        except Refused as error:
            steps.append(GuideStep(title, error.what, error.fix, skipped=True))
            continue
        if not result.matched:
            missing = english("nothing could be compared: the names of both sides have nothing in common")
            fix = english("check that folders and rules belong together")
            steps.append(GuideStep(title, missing, fix, bad=True))
            continue
        if title == _QUANTIZATION:
            usual = _distances(result)
        found = result.located or locate(result.rows, result.columns)
        step = _judged(title, found, advise)
        if step.bad and accepted:
            advice = english(
                "nothing: the loss is within {limit:g} %; else {advice}", limit=_ACCEPTED, advice=step.advice
            )
            step = replace(step, bad=False, noted=True, advice=advice)
        steps.append(step)
    lacking = list(_lacking(given))
    if not compared and not steps:
        fix = english("give two of --float, --fake-quant, --npu and --npu-off, and their rules")
        fix = lacking[0].advice if lacking else fix
        raise Refused(english("There is nothing to compare."), code=Code.PARAMETER, fix=fix)
    return [*steps, *lacking]


def _limits(title: str, given: GuideInput, usual: Mapping[str, float]) -> TensorLimits:
    """When a tensor is wrong in a step: by its precision, and by what the fake-quant model loses itself."""
    if title == _QUANTIZATION or (title == _WHOLE_MODEL and _is_quantized(given.npu)):
        profile = "ascend-int4" if 4 in widths(given.scale_files) else "ascend-int8"
        return TensorLimits(*profile_limits(profile), usual)
    if title == _WHOLE_MODEL:
        return TensorLimits(*profile_limits("ascend-float16"))
    return TensorLimits()


def _is_quantized(folder: Path | None) -> bool:
    return folder is not None and open_folder(folder, warn=lambda text: None).quantized


def _distances(result: ComparisonResult) -> dict[str, float]:
    """How far off the fake-quant model is itself, by operators of the float original."""
    place = result.columns.algorithms.index("RelativeEuclideanDistance")
    found: dict[str, float] = {}
    for row in result.rows:
        away = number(row.values[place]) if row.values else math.nan
        for name in row.golden.split(","):
            if math.isfinite(away):
                found[name] = max(found.get(name, 0.0), away)
    return found


def _lacking(given: GuideInput) -> Iterator[GuideStep]:
    """Steps whose sides were given, but not the rules that tell what belongs to what."""
    missing = english("not looked at: the rules that tell which operator is which are missing")
    alike = english(
        "add -f om.json and -cf om_off.json; dumps of equal operators need no rules, see 'ascend compare'"
    )
    for title, sides, known, fix in (
        (_QUANTIZATION, (given.fakes, given.floats), given.quant_rule, english("add -q quant.json")),
        (_CONVERSION, (given.unfused, given.fakes), given.unfused_rule, english("add -cf om_off.json")),
        (_FUSION, (given.npu, given.unfused), given.offline_rule and given.unfused_rule, alike),
        (_WHOLE_MODEL, (given.npu, given.floats), given.offline_rule or given.quant_rule,
         english("add -f om.json")),
    ):  # fmt: skip
        if all(sides) and not known:
            yield GuideStep(title, missing, fix, skipped=True)


def _before(given: GuideInput) -> Iterator[GuideStep]:
    accuracies = [one for one in (given.float_accuracy, given.quant_accuracy) if one is not None]
    if any(not 0 <= one <= _WHOLE for one in accuracies):
        what = english("{accuracies} is no accuracy in per cent.", accuracies=" and ".join(map(str, accuracies)))
        raise Refused(what, code=Code.PARAMETER, fix=english("give numbers from 0 to 100"))
    if len(accuracies) == 1:
        fix = english("give both --float-accuracy and --quant-accuracy")
        raise Refused(english("A loss needs the accuracy of both models."), code=Code.PARAMETER, fix=fix)
    if accuracies and min(accuracies) <= 1 < max(accuracies):
        what = english(
            "{accuracies} are accuracies in different units.", accuracies=" and ".join(map(str, accuracies))
        )
        raise Refused(what, code=Code.PARAMETER, fix=english("give both in per cent, or both as shares of one"))
    if accuracies:
        # Nobody asks about a model that is right in one case of a hundred: these are shares.
        scale = _WHOLE if max(accuracies) <= 1 else 1.0
        # 70.3 less 69.3 is 1, not what binary fractions make of it.
        yield _loss(round(scale * (accuracies[0] - accuracies[1]), 6))
    if given.calibration:
        yield _calibration(given)


def _loss(loss: float) -> GuideStep:
    if loss <= _ACCEPTED:
        return GuideStep(
            _LOSS,
            english(
                "{loss:.2f} % is within {limit:g} %: reasonable, no need to look further",
                loss=loss,
                limit=_ACCEPTED,
            ),
        )
    if loss <= _LARGE:
        verdict = english("{loss:.2f} % is more than {limit:g} %", loss=loss, limit=_ACCEPTED)
        return GuideStep(_LOSS, verdict, english("find the step that loses it, below"), bad=True)
    verdict = english("{loss:.2f} % is more than {limit:g} %: it cannot be ignored", loss=loss, limit=_LARGE)
    advice = english("find the step that loses it; keep the first and last layers in float to begin with")
    return GuideStep(_LOSS, verdict, advice, bad=True)


def _calibration(given: GuideInput) -> GuideStep:
    if given.calibration.isdigit():
        count, reach = int(given.calibration), ""
    else:
        count, reach = _looked_into(Path(given.calibration), given.floats)
    if count < _FEWEST:
        advice = english(
            "calibrate again with {fewest} to {most} samples of all kinds", fewest=_FEWEST, most=_MOST
        )
        return GuideStep(_CALIBRATION, english("{count} samples are too few", count=count), advice, bad=True)
    if reach:
        verdict = english("{count} samples, but {reach}", count=count, reach=reach)
        return GuideStep(_CALIBRATION, verdict, english("calibrate again with data like that in use"), bad=True)
    more = english("{count} samples, more than the {most} that are usual", count=count, most=_MOST)
    return GuideStep(_CALIBRATION, more if count > _MOST else english("{count} samples", count=count))


def _looked_into(folder: Path, floats: Path | None) -> tuple[int, str]:
    """How many samples a folder has, and what in the data under test lies beyond them."""
    try:
        source = open_source(folder)
        arrays = [
            source.read(info.name, sample)
            for info in source.tensors
            if not info.problem
            for sample in source.samples
        ]
    except (BadInput, Unreadable) as error:
        files = [path for path in folder.rglob("*") if path.is_file()] if folder.is_dir() else []
        if not files:
            raise Refused(
                "{folder} holds no samples.", code=Code.PATH, fix=english("check --calibration"), folder=folder
            ) from error
        return len(files), ""  # images and the like: they can be counted
    count = len(arrays) if len(arrays) > 1 else (arrays[0].shape[0] if arrays and arrays[0].ndim else len(arrays))
    if floats is None or not arrays:
        return count, ""
    low, high = (min(float(array.min()) for array in arrays), max(float(array.max()) for array in arrays))
    golden = open_source(floats)
    shapes = {array.shape[1:] for array in arrays} | {array.shape for array in arrays}
    for info in golden.tensors:
        if info.problem or not ({info.shape, info.shape[1:]} & shapes):
            continue
        values = np.asarray(golden.read(info.name, golden.samples[0]))
        room = _BEYOND * (high - low)
        if float(values.min()) < low - room or float(values.max()) > high + room:
            ends = {"least": float(values.min()), "largest": float(values.max()), "low": low, "high": high}
            return count, english(
                "{name} reaches [{least:.4g}, {largest:.4g}], beyond their [{low:.4g}, {high:.4g}]",
                name=info.name,
                **ends,
            )
        break
    return count, ""


_Advice = Callable[[str], tuple[str, str]]
"""What to do about an error of one operator, given its name, and about one of many."""


def _of_quantization(op: str) -> tuple[str, str]:
    return (
        english(
            "quantize again with this node in float: roundoff quantize --set '{op}=float', or AMCT's skip_layers",
            op=DEQUANT_NAME.sub("", op),  # the layer: a dequantizer is in no float model
        ),
        english(
            "many layers lose a little: quantize again with another method, the first and last layer in float"
        ),
    )


def _of_conversion(op: str) -> tuple[str, str]:
    return (
        english(
            "compare it alone with -op {op}, keep it in float when quantizing, and report it to the vendor", op=op
        ),
        english("check quantization first; then quantize again with other settings until the outputs agree"),
    )


def _of_fusion(op: str) -> tuple[str, str]:
    return (
        english("switch off the fusion that makes {op}, with --fusion_switch_file, and compare again", op=op),
        english("compare with fusion off, where every operator has a counterpart"),
    )


def _of_whole(op: str) -> tuple[str, str]:
    return (
        english(
            "compare it alone with -op {op}; a quantized model also with its fake-quant original and fusion off",
            op=op,
        ),
        english(
            "compare float with fake-quant, and fake-quant with the offline model without fusion: one of both "
            "loses it"
        ),
    )


def _comparisons(given: GuideInput, out: Path) -> Iterator[tuple[str, Request, _Advice]]:
    scales = given.scale_files

    def request(mine: Path, golden: Path, files: RuleFiles, *, prefix: str) -> Request:
        # Scales are those of a quantized model; the model is computed again only where its own dump is looked at.
        asked = Request(mine, golden, files, out=out, prefix=prefix)
        if prefix not in ("conversion_", "offline_"):
            return asked
        model = given.replay or (scales.deploy if _is_quantized(mine) else None)
        return replace(asked, record=given.record, deploy=given.deploy, beside=given.quant_rule, replay=model)

    if given.fakes and given.floats and given.quant_rule:
        files = RuleFiles(quantized=given.quant_rule)
        step = request(given.fakes, given.floats, files, prefix="quantization_")
        yield _QUANTIZATION, step, _of_quantization
    if given.unfused and given.fakes and given.unfused_rule:
        files = RuleFiles(offline=given.unfused_rule)
        step = request(given.unfused, given.fakes, files, prefix="conversion_")
        yield _CONVERSION, step, _of_conversion
    if given.npu and given.unfused and given.offline_rule and given.unfused_rule:
        files = RuleFiles(offline=given.offline_rule, unfused=given.unfused_rule)
        step = request(given.npu, given.unfused, files, prefix="fusion_")
        yield _FUSION, step, _of_fusion
    if given.npu and given.floats and (given.offline_rule or given.quant_rule):
        quantized = open_folder(given.npu, warn=lambda text: None).quantized
        files = RuleFiles(given.offline_rule, given.quant_rule if quantized else None)
        step = request(given.npu, given.floats, files, prefix="offline_")
        yield _WHOLE_MODEL, step, _of_whole


def _far(distance: float) -> str:
    if math.isfinite(distance):
        return english("{distance:.2g} off", distance=distance)
    return english("not finite, or not zero as it should be")


def _judged(title: str, found: Located, advise: _Advice) -> GuideStep:
    if found.kind == "none":
        verdict = english("all {count} tensors agree", count=found.compared)
        if found.wrong:
            verdict = english("the outputs agree, {wrong} tensors are off by rounding", wrong=found.wrong)
        if found.replayed:
            verdict = english(
                "{verdict}, and {count} operators are right by their own inputs",
                verdict=verdict,
                count=found.replayed,
            )
        if not found.hint:
            return GuideStep(title, verdict)
        verdict = english(
            "{verdict} by cosine and distance, but {op} has a {hinted}",
            verdict=verdict,
            op=found.hint,
            hinted=found.hinted,
        )
        advice = english("when the results are wrong all the same, look at it with -op {op}", op=found.hint)
        return GuideStep(title, verdict, advice)
    end = english("and reaches the last tensor") if found.reaches_end else english("but the last tensor agrees")
    verdict, advice = _told(found, advise(found.op))
    verdict = english("{verdict}, {end}", verdict=verdict, end=end)
    if not found.reaches_end:
        advice = english("can be left as it is; else {advice}", advice=advice)
    return GuideStep(title, verdict, advice, bad=True)


_CAUSES = {
    "scale": english(
        "the device uses another scale than the files tell: compile the deploy model of this record again"
    ),
    "offset": english(
        "the device uses another offset than the files tell: compile the deploy model of this record again"
    ),
    "shift": english(
        "something is added that the model does not add, such as another bias: compile it again, then report it"
    ),
    "saturation": english(
        "values are cut off: calibrate again with data that reaches as far, or keep this node in float"
    ),
    "sums": english("sums of codes are cut off: keep this node in float, and report it to the vendor"),
}
"""What to do about a cause that is known, whatever the step."""


def _told(found: Located, advise: tuple[str, str]) -> tuple[str, str]:
    """What was found in a sentence, and what to do about it."""
    if found.kind == "accumulated":
        return _accumulated(found), advise[1]
    advice = _CAUSES.get(found.cause.kind if found.cause is not None else "", advise[0])
    if found.faults:
        nodes = fault_text(found.faults[0])
        for each in found.faults[1:]:
            nodes = english("{nodes}; {more}", nodes=nodes, more=fault_text(each))
        if len(found.faults) == 1:
            return english("error of a node, confirmed: an error {nodes}", nodes=nodes), advice
        return english(
            "{count} nodes are at fault, confirmed: an error {nodes}", count=len(found.faults), nodes=nodes
        ), advice
    if found.kind == "between":
        told = english("error between two dumps: it {where}", where=between_text(found))
        if found.unscaled:
            return told, english("give --record or --deploy, which tell the scales of codes")
        return told, english("dump all operators, inputs included; or give the model with --replay")
    told = english("error of a node: {op} is {far}", op=found.op, far=_far(found.distance))
    if found.cause is not None:
        told = english("{told} ({cause})", told=told, cause=found.cause.text)
    if not math.isnan(found.before):
        told = english("{told}, {before:.2g} before it", told=told, before=found.before)
    return _with_others(told, found), advice


def _accumulated(found: Located) -> str:
    """What is said of an error that no single operator makes."""
    if found.rounding:
        return english(
            "accumulated rounding: {wrong} tensors are off, from {op} on, yet all {all} operators are right by "
            "their own inputs",
            wrong=found.wrong,
            op=found.op,
            all=found.replayed,
        )
    if found.replayed:
        return english(
            "accumulated error: {wrong} of {all} operators add about {distance:.2g} each, none stands out",
            wrong=found.wrong,
            all=found.replayed,
            distance=found.distance,
        )
    return english(
        "accumulated error: {wrong} tensors, from {op} on ({far})",
        wrong=found.wrong,
        op=found.op,
        far=_far(found.distance),
    )


def _with_others(told: str, found: Located) -> str:
    """What was found with more operators of which the same can be told."""
    if not found.also:
        return told
    return english("{told}; so is {also}, whose inputs are right", told=told, also=", ".join(found.also))
