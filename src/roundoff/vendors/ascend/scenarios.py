"""Which flags go with which folders, and the rule that comes of them."""

from dataclasses import dataclass
from pathlib import Path

from roundoff.vendors.ascend.errors import Code, Refused
from roundoff.vendors.ascend.folders import Folder, Kind
from roundoff.vendors.ascend.merging import through_quantization, without_fusion
from roundoff.vendors.ascend.quant_pairs import mark_pairs
from roundoff.vendors.ascend.rules import Rule, Warn, read_rule

__all__ = ["RuleFiles", "check_scenario", "load_rule"]


@dataclass(frozen=True, slots=True)
class RuleFiles:
    """The files that tell which operator stands for which.

    Attributes:
        offline: JSON of the offline model (-f).
        quantized: JSON of AMCT (-q).
        unfused: JSON of the offline model without fusion (-cf).
    """

    offline: Path | None = None
    quantized: Path | None = None
    unfused: Path | None = None

    def __bool__(self) -> bool:
        return bool(self.offline or self.quantized or self.unfused)


def check_scenario(mine: Folder, golden: Folder, files: RuleFiles, *, strict: bool) -> None:
    """Refuse flags that do not go with what the folders hold.

    Args:
        mine: The folder under test.
        golden: The golden folder.
        files: The rules that were given.
        strict: Demand both files where the vendor does and one is enough.

    Raises:
        Refused: The scenario cannot be compared so.
    """
    about = f"When the left {mine.described} and the right {golden.described},"
    if mine.kind is Kind.NPU:
        _check_offline(about, mine, golden, files=files, strict=strict)
    elif mine.kind is Kind.FAKE_QUANT and golden.kind is Kind.FLOAT:
        _refuse(about, "there is no need to enter the -cf parameter.", files.unfused, Code.KIND)
        _require(about, "-q", files.quantized, Code.KIND)
        _refuse(about, "there is no need to enter the -f parameter.", files.offline, Code.KIND)
    else:
        raise _impossible(about)


def _check_offline(about: str, mine: Folder, golden: Folder, *, files: RuleFiles, strict: bool) -> None:
    if golden.kind is Kind.NPU:
        if mine.quantized != golden.quantized and strict:
            raise _impossible(about)
        if files.offline:
            _require(about, "-cf", files.unfused)
        if files.unfused:
            _require(about, "-f", files.offline)
        _refuse(about, "there is no need to enter the -q parameter.", files.quantized)
    elif golden.kind is Kind.FLOAT:
        _refuse(about, "there is no need to enter the -cf parameter.", files.unfused)
        if mine.quantized and not strict:
            # Either file tells enough: the offline model names its originals, and AMCT names its own.
            if not files.offline:
                _require(about, "-f or -q", files.quantized)
            return
        _require(about, "-f", files.offline)
        if mine.quantized:
            _require(about, "-q", files.quantized)
        else:
            _refuse(about, "there is no need to enter the -q parameter.", files.quantized)
    else:
        if not mine.quantized:
            raise _impossible(about)
        _require(about, "-f", files.offline)
        _refuse(about, "there is no need to enter the -q or -cf parameter.", files.quantized or files.unfused)


def load_rule(files: RuleFiles, *, warn: Warn, strict: bool) -> Rule:
    """Read and join the files that were given."""
    if files.offline and files.quantized:
        offline, quantized = (_read(path, warn=warn) for path in (files.offline, files.quantized))
        return through_quantization(offline, quantized, warn=warn)
    if files.offline and files.unfused:
        fused, unfused = (_read(path, warn=warn) for path in (files.offline, files.unfused))
        return without_fusion(fused, unfused, warn=warn, strict=strict)
    path = files.offline or files.quantized
    return _read(path, warn=warn) if path else Rule()


def _read(path: Path, *, warn: Warn) -> Rule:
    rule = read_rule(path)
    mark_pairs(rule, warn=warn)
    return rule


def _require(about: str, flag: str, given: Path | None, code: Code = Code.PARAMETER) -> None:
    if given is None:
        raise Refused(f"{about} the {flag} parameter is required.", code=code, fix=f"add {flag} FILE.json")


def _refuse(about: str, what: str, given: Path | None, code: Code = Code.PARAMETER) -> None:
    if given is not None:
        raise Refused(f"{about} {what}", code=code, fix="leave that parameter out")


def _impossible(about: str) -> Refused:
    fix = "exchange -m and -g, or compare step by step: float original, fake-quant original, offline model"
    return Refused(f"{about} this scenario cannot be compared.", code=Code.KIND, fix=fix)
