"""Which flags go with which folders, and the rule that comes of them."""

import os
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from roundoff.messages.message import english
from roundoff.vendors.ascend.counterparts import mark_pairs
from roundoff.vendors.ascend.dump_rules import rule_of_dump
from roundoff.vendors.ascend.errors import Code, Refused
from roundoff.vendors.ascend.folders import Folder, Kind
from roundoff.vendors.ascend.rows import NEVER_DUMPED
from roundoff.vendors.ascend.rules import (
    FusionRule,
    Operator,
    OperatorOrigin,
    Warn,
    group_key,
    names_quantizer,
    read_rule,
)
from roundoff.vendors.ascend.scales import same_network

# Two rules made one: an offline model seen through its quantized original, or through itself without fusion.


def through_quantization(offline: FusionRule, quantized: FusionRule, *, warn: Warn) -> FusionRule:
    """The rule of an offline model in terms of the float original, by that of the quantized original.

    Args:
        offline: From offline operators to those of the quantized original.
        quantized: From those to the operators of the float original.
        warn: Told of names that the second does not know.
    """
    merged = FusionRule(group_of=dict(offline.group_of), input_nodes=list(offline.input_nodes))
    renewed: dict[str, Operator] = {}
    for operator in (operator for group in offline.groups.values() for operator in group):
        originals = dict.fromkeys(
            original
            for name in operator.originals
            for found in quantized.groups.get(quantized.group_of.get(name, ""), ())
            for original in found.originals
        )
        outputs = [
            found for origin in operator.outputs for found in _before_quantization(origin, quantized, warn=warn)
        ]
        changed = replace(
            operator,
            originals=tuple(originals) or operator.originals,
            outputs=tuple(outputs) or operator.outputs,
            last_originals=_last_first(operator, quantized),
        )
        key = group_key(changed.name, changed.originals)
        merged.group_of[changed.name] = key
        group = merged.groups.setdefault(key, [])
        changed = replace(changed, index=group[0].index if group else len(merged.groups) - 1)
        group.append(changed)
        renewed[changed.name] = changed
    merged.in_order = [renewed[operator.name] for operator in offline.in_order]
    return merged


def _last_first(operator: Operator, quantized: FusionRule) -> tuple[str, ...]:
    """Names in the float original of what an operator computes, from the last on; quantizers compute nothing."""
    found: list[str] = []
    for name in reversed(operator.originals):
        if not names_quantizer(name):
            group = quantized.groups.get(quantized.group_of.get(name, ""), ())
            found += [origin.name for same in group if same.name == name for origin in same.outputs]
            found.append(name)
    return tuple(dict.fromkeys(filter(None, found)))


def _before_quantization(origin: OperatorOrigin, quantized: FusionRule, *, warn: Warn) -> list[OperatorOrigin]:
    if not origin.name:
        return []
    if origin.name not in quantized.group_of:
        warn(f'The name "{origin.name}" is not in quant fusion rule.')
        return []
    group = quantized.groups.get(quantized.group_of[origin.name], [])
    if origin.index is None:
        return [_laid_out(found, origin) for operator in group for found in operator.outputs]
    return [
        _laid_out(operator.outputs[origin.index], origin)
        if origin.index < len(operator.outputs)
        else OperatorOrigin()
        for operator in group
        if operator.name == origin.name
    ]


def _laid_out(found: OperatorOrigin, offline: OperatorOrigin) -> OperatorOrigin:
    """The offline model knows the layout, which the quantized original does not say."""
    return replace(found, format=offline.format, shape=offline.shape) if offline.format else found


def without_fusion(fused: FusionRule, unfused: FusionRule, *, warn: Warn, strict: bool) -> FusionRule:
    """The rule of a fused offline model in terms of the same model without fusion.

    Args:
        fused: From fused operators to the original.
        unfused: From operators without fusion to the original.
        warn: Told of operators without counterpart.
        strict: Drop, as the vendor does, all operators but one that the compiler made, and those that share
            an original.
    """
    counterpart = {original: operator.name for operator in unfused.in_order for original in operator.originals}
    merged = FusionRule(input_nodes=[] if strict else list(fused.input_nodes))
    keys: set[str] = set()
    originals: set[str] = set()
    taken: set[str] = set()
    for name, key in reversed(fused.group_of.items()):
        if key in keys:
            continue
        keys.add(key)
        merged.group_of[name] = key
        for operator in fused.groups[key]:
            first = operator.originals[0]
            if strict and not _first_of_its_kind(first, counterpart.get(first), originals=originals, taken=taken):
                continue
            changed = replace(
                operator,
                originals=_counterparts(operator, counterpart, warn=warn),
                outputs=_found_again(operator, counterpart, unfused=unfused, warn=warn),
            )
            merged.groups.setdefault(key, []).append(changed)
            merged.in_order.insert(0, changed)
    if not strict:
        merged.group_of = dict(fused.group_of)
    return merged


def _first_of_its_kind(first: str, counterpart: str | None, *, originals: set[str], taken: set[str]) -> bool:
    if first in originals:
        return False
    originals.add(first)
    if counterpart is None:
        return True
    if counterpart in taken:
        return False
    taken.add(counterpart)
    return True


def _counterparts(operator: Operator, counterpart: dict[str, str], *, warn: Warn) -> tuple[str, ...]:
    if operator.originals == ("",):
        return ("",)
    found: dict[str, None] = {}
    for name in operator.originals:
        if name in counterpart:
            found[counterpart[name]] = None
        else:
            warn(f'There is no original operator associated with the operator "{name}" in original op names.')
    return tuple(found)


def _found_again(
    operator: Operator, counterpart: dict[str, str], *, unfused: FusionRule, warn: Warn
) -> tuple[OperatorOrigin, ...]:
    outputs = []
    for place, origin in enumerate(operator.outputs):
        name = counterpart.get(origin.name) if origin.name else None
        index = None if name is None else _output_of(unfused, name, origin)
        if origin.name and index is None:
            warn(f'There is no valid output desc associated with "{operator.name}:output:{place}".')
        outputs.append(replace(origin, name=name or origin.name, index=origin.index if index is None else index))
    return tuple(outputs)


def _output_of(unfused: FusionRule, name: str, origin: OperatorOrigin) -> int | None:
    """Which output of an operator without fusion is the same original tensor."""
    for operator in unfused.groups.get(unfused.group_of.get(name, ""), ()):
        for place, found in enumerate(operator.outputs):
            if (found.name, found.index) == (origin.name, origin.index):
                return place
    return None


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
    about = english(
        "When the left {described} and the right {described2},",
        described=mine.described,
        described2=golden.described,
    )
    if mine.kind is Kind.NPU:
        _check_offline(about, mine, golden, files=files, strict=strict)
    elif mine.kind is Kind.FAKE_QUANT and golden.kind is Kind.FLOAT:
        _refuse(about, english("there is no need to enter the -cf parameter."), files.unfused, Code.KIND)
        _require(about, "-q", files.quantized, Code.KIND)
        _refuse(about, english("there is no need to enter the -f parameter."), files.offline, Code.KIND)
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
        _refuse(about, english("there is no need to enter the -q parameter."), files.quantized)
    elif golden.kind is Kind.FLOAT:
        _refuse(about, english("there is no need to enter the -cf parameter."), files.unfused)
        if mine.quantized and not strict:
            # Either file tells enough: the offline model names its originals, and AMCT names its own.
            if not files.offline:
                _require(about, "-f or -q", files.quantized)
            return
        _require(about, "-f", files.offline)
        if mine.quantized:
            _require(about, "-q", files.quantized)
        else:
            _refuse(about, english("there is no need to enter the -q parameter."), files.quantized)
    else:
        if not mine.quantized:
            raise _impossible(about)
        _require(about, "-f", files.offline)
        _refuse(
            about, english("there is no need to enter the -q or -cf parameter."), files.quantized or files.unfused
        )


def load_rule(
    files: RuleFiles, mine: Folder, *, warn: Warn, strict: bool, golden: Folder | None = None
) -> FusionRule:
    """Read and join the files that were given; what no JSON of the offline model tells, its dump does.

    Args:
        files: The files.
        mine: The folder under test.
        warn: Told of names without counterpart.
        strict: Join them as the vendor does.
        golden: The golden folder.
    """
    if files.offline and files.quantized:
        offline, quantized = (_read(path, warn=warn, strict=strict) for path in (files.offline, files.quantized))
        other = "" if strict else _other_network(offline, quantized, files.quantized)
        if other:
            warn(english("{what}; it is not used.", what=other))
            return offline
        return through_quantization(offline, quantized, warn=warn)
    if files.offline and files.unfused:
        fused, unfused = (_read(path, warn=warn, strict=strict) for path in (files.offline, files.unfused))
        return without_fusion(fused, unfused, warn=warn, strict=strict)
    if files.quantized and mine.kind is Kind.NPU:
        quantized = _read(files.quantized, warn=warn, strict=strict)
        offline = rule_of_dump(mine, quantized.in_order, golden=golden)
        if other := _other_network(offline, quantized, files.quantized):
            raise Refused(f"{other}.", code=Code.JSON, fix=english("give that of this model, or -f FILE.json"))
        mark_pairs(offline, warn=warn)
        return through_quantization(offline, quantized, warn=warn)
    path = files.offline or files.quantized
    return _read(path, warn=warn, strict=strict) if path else FusionRule()


def _other_network(offline: FusionRule, quantized: FusionRule, path: Path) -> str:
    """That a file is of another network than an offline model; empty where both are of one."""
    ran = (operator for operator in offline.in_order if operator.type not in NEVER_DUMPED)
    names = list(dict.fromkeys(name for operator in ran for name in operator.originals if name))
    strange = [name for name in names if name not in quantized.group_of]
    if not names or same_network(len(names) - len(strange), len(names)):
        return ""
    return english(
        "{path} is of another network: it knows {known} of the {count} operators of the offline model, not so "
        "{first!r}",
        path=path,
        known=len(names) - len(strange),
        count=len(names),
        first=strange[0],
    )


def _read(path: Path, *, warn: Warn, strict: bool) -> FusionRule:
    rule = read_rule(path)
    mark_pairs(rule, warn=warn, strict=strict)
    return rule


def _require(about: str, flag: str, given: Path | None, code: Code = Code.PARAMETER) -> None:
    if given is None:
        raise Refused(
            english("{about} the {flag} parameter is required.", about=about, flag=flag),
            code=code,
            fix=english("add {flag} FILE.json", flag=flag),
        )


def _refuse(about: str, what: str, given: Path | None, code: Code = Code.PARAMETER) -> None:
    if given is not None:
        raise Refused("{about} {what}", code=code, fix=english("leave that parameter out"), about=about, what=what)


def _impossible(about: str) -> Refused:
    fix = english(
        "exchange -m and -g, or compare step by step: float original, fake-quant original, offline model"
    )
    return Refused(english("{about} this scenario cannot be compared.", about=about), code=Code.KIND, fix=fix)


# Flags that need or exclude each other, refused with the vendor's exit codes.

_MAX_TOP = 10_000
_LINES = (10_000, 1_000_000)


class Flags(Protocol):
    """What was typed, by the names of flags; a parser's result, or anything else that has them."""

    def __getattr__(self, name: str, /) -> Any:
        """The value of a flag."""


def check_flags(found: Flags) -> None:
    """Refuse flags of ``compare`` that do not go together, or have impossible values."""
    _check_parts(found)
    if found.max_cmp_size < 0:
        what = english(
            "Please enter a valid number for max_cmp_size, now is {max_cmp_size}.", max_cmp_size=found.max_cmp_size
        )
        raise Refused(what, code=Code.PARAMETER, fix=english("give a number from 0"))
    if found.post_process is not None or found.my_dump_path.suffix == ".h5":
        what = english("Results of PyTorch in .h5 files are not read.")
        raise Refused(
            what, code=Code.UNSUPPORTED, fix=english("store the tensors as .npy and use 'roundoff compare'")
        )
    if found.mapping:
        _check_mapping(found)
    elif found.op_name is None:
        for given, *flags in (
            (found.output_tensor, "-o", "--output_tensor"), (found.input_tensor, "-i", "--input_tensor"),
            (found.topn, "-n", "--topn"), (found.max_line, "-ml", "--max_line"),
            (found.ignore_single_op_result or None, "--ignore_single_op_result"),
        ):  # fmt: skip
            if given is not None:
                names = " or ".join(f'"{flag}"' for flag in flags)
                what = english("The argument '{names}' takes effect only when the \"'-op'\" exists.", names=names)
                raise Refused(
                    what, code=Code.PARAMETER, fix=english("add -op NAME, or leave {flags} out", flags=flags[0])
                )
    else:
        _check_single(found)


def check_output(folder: Path) -> None:
    """Refuse a folder for results that could not be written to, before the work."""
    there = next((path for path in (folder, *folder.parents) if os.path.lexists(path)), Path())
    if not there.is_dir():
        what = english('The output path "{there}" is not a folder.', there=there)
    elif not os.access(there, os.W_OK | os.X_OK):
        what = english('The output path "{there}" cannot be written to.', there=there)
    else:
        return
    raise Refused(what, code=Code.PATH, fix=english("choose another folder with -out"))


def _check_parts(found: Flags) -> None:
    for given, flag, name in ((found.range, "-r", "--range"), (found.select, "-s", "--select")):
        if given is None:
            continue
        if found.fusion_rule_file is None:
            what = english(
                'The argument "{flag}" or "{name}" takes effect only when the "-f" exists.', flag=flag, name=name
            )
            raise Refused(what, code=Code.PARAMETER, fix=english("add -f FILE.json"))
        if found.op_name:
            what = english(
                'The argument "{flag}" or "{name}" exists, the "-op" parameter is invalid.', flag=flag, name=name
            )
            raise Refused(what, code=Code.PARAMETER, fix=english("leave out {flag} or -op", flag=flag))
    if found.range is not None and found.select is not None:
        what = english('The argument "-r" and "-s" can not be used at the same time')
        raise Refused(what, code=Code.PARAMETER, fix=english("leave one of them out"))


def _check_mapping(found: Flags) -> None:
    for given, flag in ((found.op_name, "-op"), (found.input_tensor or found.output_tensor, "-i or -o")):
        if given is not None:
            what = english("When --mapping or -map exists,the {flag} parameter is invalid.", flag=flag)
            raise Refused(what, code=Code.PARAMETER, fix=english("leave out {flag}", flag=flag))
    if found.fusion_rule_file is None and found.quant_fusion_rule_file is None:
        what = english("When --mapping or -map exists,there is need to enter the -f or -q parameter.")
        raise Refused(what, code=Code.PARAMETER, fix=english("add -f FILE.json or -q FILE.json"))


def _check_single(found: Flags) -> None:
    for given in (found.output_tensor, found.input_tensor):
        if given is not None and not re.fullmatch(r"[0-9]{1,9}", given):
            what = english(
                "The detail index '{given}' is invalid. It only supports 'natural number'.", given=given
            )
            raise Refused(what, code=Code.PARAMETER, fix=english("give a number from 0"))
    if found.topn is not None and not 1 <= found.topn <= _MAX_TOP:
        what = english(
            "The top n index ({topn}) is out of range [1, {max_top}]. Please check the index.",
            topn=found.topn,
            max_top=_MAX_TOP,
        )
        raise Refused(what, code=Code.INDEX, fix=english("give -n from 1 to {max_top}", max_top=_MAX_TOP))
    if found.max_line is not None and not _LINES[0] <= found.max_line <= _LINES[1]:
        what = english(
            "The --max_line argument index ({max_line}) is out of range {lines} - {lines2}. ",
            max_line=found.max_line,
            lines=_LINES[0],
            lines2=_LINES[1],
        )
        what += english("Please check the index.")
        raise Refused(
            what,
            code=Code.PARAMETER,
            fix=english("give -ml from {lines} to {lines2}", lines=_LINES[0], lines2=_LINES[1]),
        )


def check_conversion(found: Flags, *, warn: Warn) -> list[Path]:
    """Refuse flags of ``convert`` that do not go together; tell the files that are meant."""
    for given, flag in (
        (found.output_tensor, "-o"), (found.input_tensor, "-i"), (found.shape, "-s"),
        (found.custom_script_path, "-c"),
    ):  # fmt: skip
        if given is not None and not found.format:
            what = english('The argument "{flag}" takes effect only when the "-f" exists.', flag=flag)
            raise Refused(what, code=Code.PARAMETER, fix=english("add -f FORMAT"))
    if found.shape is not None and not re.fullmatch(r"[0-9]{1,18}(,[0-9]{1,18})*", found.shape):
        what = english("The shape '{shape}' is invalid.", shape=found.shape)
        raise Refused(what, code=Code.PARAMETER, fix=english("write for example -s 1,3,224,224"))
    whole = Path(found.dump_file)
    if whole.is_dir():
        files = sorted(path for path in whole.iterdir() if path.is_file() and not _is_note(path))
        root = Path(os.path.realpath(whole))
        links = [path for path in files if not Path(os.path.realpath(path)).is_relative_to(root)]
        for path in links:
            warn(f"{path} is a link that leads out of the folder and is not read.")
        files = [path for path in files if path not in links]
        if not files:
            raise Refused(
                english("The dump path is empty."),
                code=Code.PARAMETER,
                fix=english("give a folder that holds dumps"),
            )
        return files
    files = [whole] if whole.exists() else [Path(part) for part in found.dump_file.split(",") if part]
    for path in files:
        if not path.is_file():
            raise Refused(
                'The path "{path}" does not exist.', code=Code.PATH, fix=english("check the path"), path=path
            )
    return files


def _is_note(path: Path) -> bool:
    return path.name.startswith(".") or path.suffix in (".csv", ".txt", ".json", ".npy", ".bin")
