"""One run of the comparison: from folders and flags to a table, its exit code and its summary."""

import functools
import math
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from roundoff.core.progress import Progress
from roundoff.core.untrusted import read_json
from roundoff.errors import BadInput, RoundoffError
from roundoff.messages.message import english
from roundoff.vendors.ascend.advisor import Advice, advise, write_advice
from roundoff.vendors.ascend.algorithms import SCALAR, own_conversions, select_algorithms
from roundoff.vendors.ascend.counterparts import CompareJob, counterpart
from roundoff.vendors.ascend.culprits import Located, OperatorError, TensorLimits, conclude, locate
from roundoff.vendors.ascend.errors import Code, NotCompared, Refused, least_cosine
from roundoff.vendors.ascend.folders import Kind, load_operator, open_folder
from roundoff.vendors.ascend.network import (
    NetworkOutcome,
    compare_group,
    compare_pair,
    group_names,
    pair_operators,
    with_inputs_of_slices,
)
from roundoff.vendors.ascend.rows import NOTHING_RUN, Columns, Row, chosen_groups, stamp, write_table
from roundoff.vendors.ascend.rules import Operator, Relation, Warn, is_dequantizer, relation_of
from roundoff.vendors.ascend.scales import ScaleFiles, Scales, read_scales, same_network
from roundoff.vendors.ascend.scenarios import RuleFiles, check_scenario, load_rule

_MAPPING_HEADER = ("OpType", "NPUDump", "GroundTruth", "TensorIndex", "NPUDumpPath", "GroundTruthPath")


@dataclass(frozen=True, slots=True)
class Request:
    """What was asked for; see the flags of ``roundoff ascend compare``."""

    mine: Path
    golden: Path
    files: RuleFiles = field(default_factory=RuleFiles)
    out: Path = field(default_factory=Path)
    algorithms: str = "all"
    scripts: Path | None = None
    options: str = ""
    overflow: bool = False
    advise: bool = False
    span: str | None = None
    picked: str | None = None
    most: int = 0
    separate_slices: bool = False
    strict: bool = False
    restore: bool = False
    prefix: str = ""
    record: Path | None = None
    deploy: Path | None = None
    replay: Path | None = None
    beside: Path | None = None
    limits: TensorLimits | None = None

    @property
    def scale_files(self) -> ScaleFiles:
        """What tells scales."""
        return ScaleFiles(self.record, self.deploy, self.files.quantized or self.beside)


@dataclass(frozen=True, slots=True)
class ComparisonResult:
    """What came of a run.

    Attributes:
        path: The table.
        rows: Its rows.
        columns: Its columns.
        code: The exit code.
        matched: Whether there was anything to compare.
        advice: What the advisor says, when it was asked.
        located: Where the error begins; None when the algorithms that tell were not asked for.
        not_replayed: Why operators could not be computed again, by their names.
    """

    path: Path
    rows: tuple[Row, ...]
    columns: Columns
    code: Code
    matched: bool
    advice: Advice | None = None
    located: Located | None = None
    not_replayed: Mapping[str, str] = field(default_factory=dict)


def open_job(request: Request, *, warn: Warn) -> CompareJob:
    """Open the folders, read the rules and find the algorithms; refuse what does not go together."""
    mine, golden = (
        open_folder(path, warn=warn, separate_slices=request.separate_slices, strict=request.strict)
        for path in (request.mine, request.golden)
    )
    check_scenario(mine, golden, request.files, strict=request.strict)
    rule = load_rule(request.files, mine, warn=warn, strict=request.strict, golden=golden)
    scales = Scales()
    if mine.kind is Kind.NPU and golden.kind is not Kind.NPU and not request.strict:
        scales = read_scales(request.scale_files, rule, warn=warn, mine=mine)
    return CompareJob(
        mine,
        golden,
        rule,
        select_algorithms(
            request.algorithms, scripts=request.scripts, options=request.options, warn=warn, strict=request.strict
        ),
        warn,
        strict=request.strict,
        overflow=(request.overflow or request.advise) and mine.kind is Kind.NPU,
        most=request.most,
        conversions=own_conversions(request.scripts, warn=warn),
        restore=request.restore,
        scales=scales,
    )


def compare_network(request: Request, *, warn: Warn, progress: Progress) -> ComparisonResult:
    """Compare all operators, or those chosen, and write the table."""
    if request.advise:
        warn(english('The argument "-advisor" will automatically configure "-overflow_detection".'))
    job = open_job(request, warn=warn)
    outcomes = list(_outcomes(job, request, progress=progress))
    if job.constants:
        count = len(job.constants)
        warn(english("{count} inputs are constants, which have no golden data and are not compared.", count=count))
    rows = sorted((row for outcome in outcomes for row in outcome.rows), key=lambda row: row.index)
    if request.strict and job.sliced:
        rows = with_inputs_of_slices(job, rows)
    matched = any(outcome.matched for outcome in outcomes)
    code = _code(outcomes, strict=request.strict)
    by_name = not request.files
    columns = Columns(
        tuple(job.algorithms),
        sequence=request.span is not None or request.picked is not None,
        mine_address=by_name or not job.mine.has_npy,
        golden_address=by_name or not job.golden.has_npy,
        overflow=job.overflow,
    )
    path = request.out / f"{request.prefix}result_{stamp()}.csv"
    lines = [columns.header, *(columns.cells(row) for row in rows)]
    write_table(path, lines, strict=request.strict)
    if not matched:
        warn(_no_match(request))
        code = Code.NO_DUMP
    advice = None
    if matched and request.advise:
        advice = advise(rows, columns=columns, inputs=job.rule.input_nodes)
        write_advice(request.out, advice)
    errors, missing = _replayed(job, request, progress=progress)
    located = None
    if {"CosineSimilarity", "RelativeEuclideanDistance"} <= set(columns.algorithms):
        located = locate(rows, columns, request.limits)
        written = {row.tensor.rsplit(":", 2)[0] for row in rows if row.values and ":output:" in row.tensor}
        every = not missing and written <= {each.op for each in errors}
        located = located if request.strict else conclude(errors, located, every=every)
    return ComparisonResult(path, tuple(rows), columns, code, matched, advice, located, missing)


def _replayed(
    job: CompareJob, request: Request, *, progress: Progress
) -> tuple[list[OperatorError], Mapping[str, str]]:
    """What operators add themselves: all with a model, else those whose scales tell what they should write."""
    if request.strict or job.mine.kind is not Kind.NPU or not job.rule.groups:
        return [], {}
    model = request.replay
    if model is None and job.mine.quantized and request.deploy in job.scales.files:
        model = request.deploy  # it was asked for, and is of this network: a model at hand
    if model is None and not job.scales.layers:
        return [], {}
    from roundoff.vendors.ascend.replay import ModelReplay, Replay, open_stages

    replay = Replay(job)
    if model is not None:
        # A record of another network was named when scales were read, and is not used here either.
        record = request.scale_files.found().record if job.mine.quantized else None
        try:
            stages = open_stages(model, record=record if record in job.scales.files else None)
        except RoundoffError as error:
            if request.replay is not None:
                raise
            job.warn(english("{model} tells scales, but cannot be replayed: {error}", model=model, error=error))
            return replay.run(progress), replay.missing
        names = [origin for operator in job.rule.in_order for origin in operator.deploys if origin.name]
        known = sum(stages.tensor(origin.name, origin.index) is not None for origin in names)
        if job.mine.quantized and not stages.coded:
            job.warn(
                english(
                    "{model} is float, and no record of it was given: operators are replayed by scales alone.",
                    model=model,
                )
            )
        elif not same_network(known, len(names)):
            job.warn(
                english(
                    "{model} is of another network: it knows {known} of {count} tensors of the offline model; "
                    "operators are replayed by scales alone.",
                    model=model,
                    known=known,
                    count=len(names),
                )
            )
        else:
            replay = ModelReplay(job, stages)
    return replay.run(progress), replay.missing


def _outcomes(job: CompareJob, request: Request, *, progress: Progress) -> Iterator[NetworkOutcome]:
    steps: list[Callable[[], NetworkOutcome]]
    if request.files:
        keys = chosen_groups(job.rule, span=request.span, picked=request.picked, warn=job.warn)
        groups = (job.rule.groups[key] for key in keys if key in job.rule.groups)
        steps = [functools.partial(compare_group, job, group) for group in groups]
    else:
        steps = [
            functools.partial(compare_pair, job, twin)
            for twin in pair_operators(job.mine, job.golden, strict=job.strict)
        ]
    progress.start("comparing", len(steps))
    for step in steps:
        yield step()
        progress.advance()
    progress.finish()


def _code(outcomes: Sequence[NetworkOutcome], *, strict: bool) -> Code:
    """The first code that is not fine; operators that need no dump count only for the vendor."""
    for outcome in outcomes:
        expected = outcome.code is Code.NO_DUMP and all(row.op_type in NOTHING_RUN for row in outcome.rows)
        if outcome.code is not Code.FINE and (strict or not expected):
            return outcome.code
    return Code.FINE


def _no_match(request: Request) -> str:
    if request.span is not None:
        return f"The model in [{request.span}] range does not match the dump data."
    if request.picked is not None:
        return f"The model in index list [{request.picked}] does not match the dump data."
    return "The model does not match the dump data, please check the model and the dump data again."


# The table of which file belongs to which -----------------------------------------------------------------------


def write_mapping(request: Request, *, warn: Warn) -> Path:
    """Write which dump and which golden file belong to every tensor, without comparing them."""
    job = open_job(request, warn=warn)
    ranged = request.span is not None or request.picked is not None
    keys = chosen_groups(job.rule, span=request.span, picked=request.picked, warn=warn)
    lines: list[list[str]] = []
    for key in keys:
        group = job.rule.groups.get(key, [])
        lines += [line for operator in group for line in _mapped(job, operator, group)]
    lines.sort(key=lambda line: int(line[0]))
    header = ["Index", "OpSequence", *_MAPPING_HEADER]
    if not ranged:
        header.remove("OpSequence")
        lines = [[line[0], *line[2:]] for line in lines]
    path = request.out / f"mapping_{stamp()}.csv"
    write_table(path, [header, *lines], strict=request.strict)
    return path


def _mapped(job: CompareJob, operator: Operator, group: list[Operator]) -> Iterator[list[str]]:
    single = relation_of(group) in (Relation.ONE_TO_ONE, Relation.MANY_TO_ONE)
    mine, golden = _both_names(operator, group, single=single)
    base = [str(operator.index), str(operator.sequence), operator.type, mine, golden]
    try:
        output = None if job.mine.kind is Kind.NPU else 0
        files = job.mine.find(operator.name, output)
    except NotCompared:
        job.warn(f'[{operator.name}] There is no left dump file for the op "{operator.name}".')
        yield [*base, "NaN", "NaN", "NaN"]
        return
    path = str(files[-1].path)
    try:
        loaded = load_operator(files, strict=job.strict)
    except NotCompared as error:
        job.warn(f"{path} file parse error: {error.message}")
        yield [*base, "NaN", path, "NaN"]
        return
    inputs = () if is_dequantizer(operator, strict=job.strict) else loaded.inputs
    outputs = () if operator.type == "AscendQuant" and job.strict else loaded.outputs
    for tensor in (*inputs, *outputs):
        about = tensor.about
        name = f"{operator.name}:{about.role}:{about.index}"
        yield [*base, name, path, _golden_path(job, operator, about.index, is_input=about.role == "input")]


def _golden_path(job: CompareJob, operator: Operator, index: int, *, is_input: bool) -> str:
    quiet = replace(job, warn=lambda text: None) if not job.strict else job
    try:
        origin = counterpart(quiet, operator, index, is_input=is_input)
        output = None if job.golden.kind is Kind.NPU else origin.index
        return str(job.golden.find(origin.name, output)[-1].path)
    except NotCompared:
        job.warn(f'[{operator.name}] There is no right dump file for the op "{operator.name}".')
        return "NaN"


def _both_names(operator: Operator, group: list[Operator], *, single: bool) -> tuple[str, str]:
    if single:
        return operator.name, ",".join(operator.originals) or "*"
    return group_names(group)


# A finished comparison in a few lines: how much was compared, and where it is worst.

_SHOWN = 3
_WIDTH = 79


def summarize(result: ComparisonResult) -> list[str]:
    """Lines about a result, each with a word in front."""
    compared = [row for row in result.rows if row.values]
    others = len(result.rows) - len(compared)
    lines = [
        english(
            "compared  {count} tensors, {others} rows without a comparison", count=len(compared), others=others
        )
    ]
    remarks = sum(row.reason not in ("", SCALAR) for row in compared)
    if remarks:
        lines.append(english("remarks   {count} compared tensors have one in CompareFailReason", count=remarks))
    lines += _cosines(result, compared)
    if result.located is not None:
        lines += _begins(result.located)
    overflow = [row.tensor for row in result.rows if row.overflow == "YES"]
    if overflow:
        names, left = ", ".join(overflow[:_SHOWN]), len(overflow) - _SHOWN
        more = english("overflow  {names} and {left} more", names=names, left=left)
        lines.append(more if left > 0 else english("overflow  {names}", names=names))
    if result.advice is not None:
        lines += wrapped(result.advice)
    return lines


def _cosines(result: ComparisonResult, compared: Sequence[Row]) -> list[str]:
    """How many tensors are not alike, and the worst of them."""
    names = result.columns.algorithms
    if "CosineSimilarity" not in names or not compared:
        return []
    place, limit = names.index("CosineSimilarity"), least_cosine()
    scores = [(float(row.values[place]), row.tensor) for row in compared if _is_number(row.values[place])]
    bad = [score for score in scores if score[0] < limit]
    number = len(bad) or english("none")
    without = len(compared) - len(scores)
    if without:
        lines = [
            english(
                "cosine    {number} below {limit}, {without} without a number",
                number=number,
                limit=limit,
                without=without,
            )
        ]
    else:
        lines = [english("cosine    {number} below {limit}", number=number, limit=limit)]
    return lines + [
        english("lowest    {value:.6f} at {tensor}", value=value, tensor=tensor)
        for value, tensor in sorted(scores)[: _SHOWN if bad else 1]
    ]


def _begins(found: Located) -> list[str]:
    """Where the error begins, and how many only pass it on."""
    if found.kind == "none":
        told = english("replayed  {count} operators, each is right by its own inputs", count=found.replayed)
        return [told] if found.replayed else []
    if found.faults:
        return [english("error     {what}", what=fault_text(each)) for each in found.faults]
    if found.kind == "between":
        return [english("error     {what}", what=between_text(found))]
    left = found.wrong - 1 - len(found.also)
    others = english("{count} others are wrong", count=left)
    victims = others if left > 0 else english("no other is wrong")
    if found.kind != "node":
        how = english("accumulates, and is too large from {op}", op=found.op)
    elif found.cause is not None:
        how = english("is introduced by {op} ({cause})", op=found.op, cause=found.cause.text)
    else:
        how = english("is introduced by {op}", op=found.op)
    lines = [english("error     {how}; {victims}", how=how, victims=victims)]
    lines += [english("          and by {op}, whose inputs are right", op=op) for op in found.also]
    if left > 0 and found.kind == "node" and not found.replayed:
        lines.append(english("          whether others are at fault, too, --replay MODEL tells"))
    return lines


def fault_text(fault: OperatorError) -> str:
    """One operator that is wrong by its own inputs, in a sentence."""
    if fault.between:
        names = " or ".join(dict.fromkeys((*fault.between, fault.op)))
        what = english("of {size:.2g} arises in {names}", size=fault.whole, names=names)
    else:
        what = english("of {size:.2g} is {op}'s own, by its own inputs", size=fault.whole, op=fault.op)
    return what if fault.cause is None else english("{what}: {cause}", what=what, cause=fault.cause.text)


def between_text(found: Located) -> str:
    """Where the error begins among operators that were not dumped."""
    first = english("before the first that was dumped")
    after = english("after {op}", op=found.after) if found.after else first
    names = ", ".join(found.between) or english("none of which was dumped")
    text = english("begins {after}, before {op} reads it: {names}", after=after, op=found.op, names=names)
    if found.unscaled:
        return english("{text}; --record or --deploy, which tell scales, tell them apart", text=text)
    return text


def wrapped(advice: Advice) -> list[str]:
    """Advice in lines that fit a terminal; letters of two columns have half of what is behind the label."""
    label = "advice    "
    widths = [_WIDTH if part.isascii() else (_WIDTH + len(label)) // 2 for part in advice.shown_lines]
    return [
        line
        for part, width in zip(advice.shown_lines, widths, strict=True)
        for line in textwrap.wrap(f"{label}{part}", width, subsequent_indent=" " * len(label))
    ]


def _is_number(text: str) -> bool:
    try:
        return not math.isnan(float(text))
    except ValueError:
        return False


# Several models of one run: a folder of rules, and the run's own tree of time, device, model, number and step.

_TREE = "time/device/model/model_id/step"


def batch_requests(request: Request, rules: Path) -> list[Request]:
    """One request for every model of the run that a rule is about.

    Args:
        request: What was asked for; its dumps are those of a whole run.
        rules: A folder of JSON files of offline models.

    Raises:
        Refused: The dumps are not those of a run, or no rule is about any of its models.
    """
    if not request.mine.resolve().name.isdigit():
        what = english(
            "The {mine} does not match the path format, which is {tree}.", mine=request.mine, tree=_TREE
        )
        raise Refused(what, code=Code.PATH, fix=english("give the folder that is named by its time"))
    files = {name: path for path in sorted(rules.glob("*.json")) if (name := _model_name(path))}
    found = [
        replace(
            request,
            mine=step,
            files=RuleFiles(files[model.name], request.files.quantized, request.files.unfused),
            prefix=f"{device.name}_{model.name}_{step.name}_",
        )
        for device, model, step in _steps(request.mine)
        if model.name in files
    ]
    if not found:
        what = english(
            "None of the {count} rules in {rules} is about a model in {mine}.",
            count=len(files),
            rules=rules,
            mine=request.mine,
        )
        raise Refused(what, code=Code.NO_DUMP, fix=english("check that the dumps lie in {tree}", tree=_TREE))
    return found


def _steps(run: Path) -> Iterator[tuple[Path, Path, Path]]:
    """Device, model and last step of all models in a run."""
    for device in _folders(run):
        for model in _folders(device):
            for number in _folders(model):
                steps = _folders(number)
                if steps:
                    yield device, model, max(steps, key=lambda step: step.name)


def _folders(path: Path) -> list[Path]:
    return sorted(entry for entry in path.iterdir() if entry.is_dir())


def _model_name(path: Path) -> str:
    try:
        content = read_json(path, what=english("The file"))
        return str(content["graph"][0]["name"])
    except (BadInput, KeyError, IndexError, TypeError):
        return ""
