"""Flags that need or exclude each other, refused with the vendor's exit codes."""

import argparse
import os
import re
from pathlib import Path

from roundoff.vendors.ascend.errors import Code, Refused
from roundoff.vendors.ascend.rules import Warn

__all__ = ["check_conversion", "check_flags", "check_output"]

_MAX_TOP = 10_000
_LINES = (10_000, 1_000_000)


def check_flags(found: argparse.Namespace) -> None:
    """Refuse flags of ``compare`` that do not go together, or have impossible values."""
    _check_parts(found)
    if found.max_cmp_size < 0:
        what = f"Please enter a valid number for max_cmp_size, now is {found.max_cmp_size}."
        raise Refused(what, code=Code.PARAMETER, fix="give a number from 0")
    if found.post_process is not None or found.my_dump_path.suffix == ".h5":
        what = "Results of PyTorch in .h5 files are not read."
        raise Refused(what, code=Code.UNSUPPORTED, fix="store the tensors as .npy and use 'roundoff compare'")
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
                what = f"The argument '{names}' takes effect only when the \"'-op'\" exists."
                raise Refused(what, code=Code.PARAMETER, fix=f"add -op NAME, or leave {flags[0]} out")
    else:
        _check_single(found)


def check_output(folder: Path) -> None:
    """Refuse a folder for results that could not be written to, before the work."""
    there = next((path for path in (folder, *folder.parents) if os.path.lexists(path)), Path())
    if not there.is_dir():
        what = f'The output path "{there}" is not a folder.'
    elif not os.access(there, os.W_OK | os.X_OK):
        what = f'The output path "{there}" cannot be written to.'
    else:
        return
    raise Refused(what, code=Code.PATH, fix="choose another folder with -out")


def _check_parts(found: argparse.Namespace) -> None:
    for given, flag, name in ((found.range, "-r", "--range"), (found.select, "-s", "--select")):
        if given is None:
            continue
        if found.fusion_rule_file is None:
            what = f'The argument "{flag}" or "{name}" takes effect only when the "-f" exists.'
            raise Refused(what, code=Code.PARAMETER, fix="add -f FILE.json")
        if found.op_name:
            what = f'The argument "{flag}" or "{name}" exists, the "-op" parameter is invalid.'
            raise Refused(what, code=Code.PARAMETER, fix=f"leave out {flag} or -op")
    if found.range is not None and found.select is not None:
        what = 'The argument "-r" and "-s" can not be used at the same time'
        raise Refused(what, code=Code.PARAMETER, fix="leave one of them out")


def _check_mapping(found: argparse.Namespace) -> None:
    for given, flag in ((found.op_name, "-op"), (found.input_tensor or found.output_tensor, "-i or -o")):
        if given is not None:
            what = f"When --mapping or -map exists,the {flag} parameter is invalid."
            raise Refused(what, code=Code.PARAMETER, fix=f"leave out {flag}")
    if found.fusion_rule_file is None and found.quant_fusion_rule_file is None:
        what = "When --mapping or -map exists,there is need to enter the -f or -q parameter."
        raise Refused(what, code=Code.PARAMETER, fix="add -f FILE.json or -q FILE.json")


def _check_single(found: argparse.Namespace) -> None:
    for given in (found.output_tensor, found.input_tensor):
        if given is not None and not re.fullmatch(r"[0-9]{1,9}", given):
            what = f"The detail index '{given}' is invalid. It only supports 'natural number'."
            raise Refused(what, code=Code.PARAMETER, fix="give a number from 0")
    if found.topn is not None and not 1 <= found.topn <= _MAX_TOP:
        what = f"The top n index ({found.topn}) is out of range [1, {_MAX_TOP}]. Please check the index."
        raise Refused(what, code=Code.INDEX, fix=f"give -n from 1 to {_MAX_TOP}")
    if found.max_line is not None and not _LINES[0] <= found.max_line <= _LINES[1]:
        what = f"The --max_line argument index ({found.max_line}) is out of range {_LINES[0]} - {_LINES[1]}. "
        what += "Please check the index."
        raise Refused(what, code=Code.PARAMETER, fix=f"give -ml from {_LINES[0]} to {_LINES[1]}")


def check_conversion(found: argparse.Namespace, *, warn: Warn) -> list[Path]:
    """Refuse flags of ``convert`` that do not go together; tell the files that are meant."""
    for given, flag in (
        (found.output_tensor, "-o"), (found.input_tensor, "-i"), (found.shape, "-s"),
        (found.custom_script_path, "-c"),
    ):  # fmt: skip
        if given is not None and not found.format:
            what = f'The argument "{flag}" takes effect only when the "-f" exists.'
            raise Refused(what, code=Code.PARAMETER, fix="add -f FORMAT")
    if found.shape is not None and not re.fullmatch(r"[0-9]{1,18}(,[0-9]{1,18})*", found.shape):
        what = f"The shape '{found.shape}' is invalid."
        raise Refused(what, code=Code.PARAMETER, fix="write for example -s 1,3,224,224")
    whole = Path(found.dump_file)
    if whole.is_dir():
        files = sorted(path for path in whole.iterdir() if path.is_file() and not _is_note(path))
        root = Path(os.path.realpath(whole))
        links = [path for path in files if not Path(os.path.realpath(path)).is_relative_to(root)]
        for path in links:
            warn(f"{path} is a link that leads out of the folder and is not read.")
        files = [path for path in files if path not in links]
        if not files:
            raise Refused("The dump path is empty.", code=Code.PARAMETER, fix="give a folder that holds dumps")
        return files
    files = [whole] if whole.exists() else [Path(part) for part in found.dump_file.split(",") if part]
    for path in files:
        if not path.is_file():
            raise Refused(f'The path "{path}" does not exist.', code=Code.PATH, fix="check the path")
    return files


def _is_note(path: Path) -> bool:
    return path.name.startswith(".") or path.suffix in (".csv", ".txt", ".json", ".npy", ".bin")
