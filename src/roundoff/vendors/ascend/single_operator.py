"""Finding the one tensor that a single-operator comparison is about."""

from dataclasses import dataclass, replace

from roundoff.core.unreadable import Unreadable
from roundoff.vendors.ascend.counterparts import Job, counterpart, find_golden, golden_of
from roundoff.vendors.ascend.errors import Code, NotCompared, Refused
from roundoff.vendors.ascend.fitting import shown
from roundoff.vendors.ascend.loading import Loaded, Tensor, load_operator
from roundoff.vendors.ascend.network import group_names, overflows
from roundoff.vendors.ascend.rules import Operator, Origin
from roundoff.vendors.ascend.single import Single

__all__ = ["Asked", "find_single", "overflowing"]

_AGAIN = "check the name and the folders"


@dataclass(frozen=True, slots=True)
class Asked:
    """Which tensor: of which operator, ``input`` or ``output``, and which one."""

    op: str
    role: str = "output"
    index: int = 0

    @property
    def tensor(self) -> str:
        """The tensor as messages name it."""
        return f"{self.op}:{self.role}:{self.index}"


def find_single(job: Job, asked: Asked) -> Single:
    """Find the tensor and its counterpart.

    Raises:
        Refused: There is no such tensor, or none to compare it with.
    """
    try:
        if not job.rule.groups:
            return _without_rule(job, asked)
        return _by_rule(job, asked)
    except Unreadable as error:
        raise Refused(f"{asked.tensor} cannot be read: {error.problem}.", code=Code.DATA, fix=error.fix) from error
    except OSError as error:
        what = f"{asked.tensor} cannot be read: {error.strerror}."
        raise Refused(what, code=Code.DATA, fix="check the files and the disk") from error


def overflowing(job: Job, op: str) -> list[str]:
    """The float16 tensors of an operator that overflow, as ``output:0``."""
    try:
        loaded = load_operator(job.mine.find(op), strict=job.strict)
    except NotCompared:
        return []
    quiet = replace(job, warn=lambda text: None)
    return [
        f"{tensor.about.role}:{tensor.about.index}"
        for tensor in (*loaded.inputs, *loaded.outputs)
        if overflows(quiet, op, tensor) == "YES"
    ]


def _by_rule(job: Job, asked: Asked) -> Single:
    try:
        operator = job.rule.find(asked.op, warn=lambda text: None)
    except NotCompared as error:
        raise Refused(error.message, code=Code.PARAMETER, fix=_AGAIN) from error
    group = job.rule.groups[job.rule.group_of[asked.op]]
    if operator.inner:
        what = f'[{asked.op}] The op "{asked.op}" is inner node for multi to multi relation.'
        raise Refused(what, code=Code.UNSUPPORTED, fix="choose the operator of the group that has an original")
    if operator.in_quant_pair:
        what = f"[{asked.op}] The -op param should not specify an operator in quant/dequant pair."
        raise Refused(what, code=Code.UNSUPPORTED, fix="choose the dequantizer behind it")
    tensor = _chosen(asked, _loaded(job, asked, operator))
    origin, golden = _golden(job, asked, operator)
    try:
        fitted = golden_of(job, operator, tensor, golden=golden, origin=origin, detail=True)
    except NotCompared as error:
        raise Refused(
            error.message or f"{asked.tensor} cannot be compared.", code=error.code, fix=_AGAIN
        ) from error
    mine_ops, golden_ops = group_names(group)
    return Single(
        fitted.mine,
        fitted.golden,
        fitted.shape,
        _axes(tensor, origin.format),
        asked.op,
        f"{asked.role}_{asked.index}",
        mine_ops.replace(",", " "),
        golden_ops.replace(",", " ") or "*",
    )


def _loaded(job: Job, asked: Asked, operator: Operator) -> Loaded:
    try:
        output = None if job.mine.kind.value == "Offline" else 0
        return load_operator(job.mine.find(operator.name, output), strict=job.strict)
    except NotCompared as error:
        none = f'[{asked.op}] There is no dump file for my output operator "{asked.op}".'
        what = error.message or f"{none} The type is {operator.type}."
        raise Refused(what, code=error.code, fix=_AGAIN) from error


def _golden(job: Job, asked: Asked, operator: Operator) -> tuple[Origin, Tensor]:
    try:
        origin = counterpart(job, operator, asked.index, is_input=asked.role == "input")
        return origin, find_golden(job, origin, operator)[0]
    except NotCompared as error:
        none = f"[{asked.op}] There is no the ground truth dump file for {asked.tensor}."
        what = none if error.code is Code.NO_DUMP else error.message or none
        raise Refused(what, code=error.code, fix=_AGAIN) from error


def _without_rule(job: Job, asked: Asked) -> Single:
    sides = []
    for flag, folder in (("-m", job.mine), ("-g", job.golden)):
        try:
            sides.append(_chosen(asked, load_operator(folder.find(asked.op), strict=job.strict)))
        except NotCompared as error:
            what = f"Failed to find {asked.op} dump data from {flag} dump data path."
            raise Refused(error.message or what, code=error.code, fix=_AGAIN) from error
    mine, golden = sides
    if mine.shape != golden.shape:
        what = (
            f"My Output data shape {shown(mine.shape)} not equal to Ground Truth data shape {shown(golden.shape)}."
        )
        raise Refused(what, code=Code.DATA, fix="compare dumps of the same model and batch")
    if mine.about.format != golden.about.format:
        what = f"The format does not match ({mine.about.format} vs {golden.about.format})."
        raise Refused(what, code=Code.FORMAT, fix="give the rules with -f and -cf")
    return Single(
        mine.values.reshape(-1),
        golden.values.reshape(-1),
        mine.shape,
        _axes(mine, "", labelled=job.strict),
        asked.op,
        f"{asked.role}_{asked.index}",
        asked.op,
        asked.op,
    )


def _chosen(asked: Asked, loaded: Loaded) -> Tensor:
    tensors = loaded.inputs if asked.role == "input" else loaded.outputs
    if asked.index >= len(tensors):
        allowed = f"[0, {len(tensors)}). Please check the index."
        what = f"[{asked.op}] The {asked.role} index ({asked.index}) is out of range {allowed}"
        raise Refused(what, code=Code.INDEX, fix="choose another index with -i or -o")
    return tensors[asked.index]


def _axes(tensor: Tensor, golden: str, *, labelled: bool = True) -> str:
    """What coordinates are called."""
    name = tensor.about.format
    if not tensor.about.shape:
        return "ID"
    if not labelled and len(tensor.shape) > 4:
        return " ".join(f"axis{place}" for place in range(len(tensor.shape)))
    if name in ("NDC1HWC0", "NCDHW", "NDHWC", "DHWCN", "DHWNC", "FRACTAL_Z_3D", "FRACTAL_Z_3D_TRANSPOSE"):
        return "N C D H W"
    return " ".join(golden) if name == "FRACTAL_Z" and golden else "N C H W"
