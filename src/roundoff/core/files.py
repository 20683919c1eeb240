"""Reading what may be read, and writing results so that a half-written one is never taken for a whole one."""

import contextlib
import errno
import json
import os
import shutil
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from roundoff.core.claims import (
    PART,
    abandoned,
    exchange,
    make_claimed,
    say_removed,
    say_taken_up,
    staged_file,
)
from roundoff.core.names import shown
from roundoff.errors import BadInput
from roundoff.messages.message import english
from roundoff.messages.numbers import format_size

# The hidden list of what roundoff wrote into a folder, so that replacing a result removes nothing else.

LISTING_NAME = ".roundoff-files"


def list_folder(folder: Path) -> None:
    """Write down all files and folders below `folder`, in `folder`."""
    _write(folder, _walk(folder))


def add_to_list(file: Path) -> None:
    """Count a file that we wrote into an earlier result of ours as a part of it; elsewhere nothing happens."""
    if listed := _listed(file.parent):
        _write(file.parent, listed | {file.name})


def foreign_files(folder: Path, *, most: int) -> list[str]:
    """Name up to `most` files and folders that the list of `folder` does not have; without a list it has none."""
    listed = _listed(folder)
    return [shown(path) for path in islice((path for path in _walk(folder) if path not in listed), most)]


def remove_listed(folder: Path, *, itself: bool = True) -> None:
    """Remove a folder with what its list names; it stays, with everything else, when something was added to it."""
    listed = _listed(folder)
    # What lies in a folder comes after it.
    for path in reversed(list(_walk(folder))):
        if path in listed:
            _remove(folder / path)
    (folder / LISTING_NAME).unlink(missing_ok=True)
    if itself:
        _remove(folder)


def _remove(path: Path) -> None:
    with contextlib.suppress(OSError):  # a folder to which something was added is not empty
        if path.is_dir() and not path.is_symlink():
            path.rmdir()
        else:
            path.unlink()


def _write(folder: Path, paths: Iterable[str]) -> None:
    (folder / LISTING_NAME).write_text(json.dumps(sorted(paths), indent=0) + "\n", encoding="utf-8")


def _listed(folder: Path) -> frozenset[str]:
    from roundoff.core.untrusted import read_json  # which reads by what is here

    try:
        listed = read_json(folder / LISTING_NAME, what=english("The file"))
    except BadInput:
        return frozenset()
    return frozenset(map(str, listed)) if isinstance(listed, list) else frozenset()


def _walk(folder: Path) -> Iterator[str]:
    """Everything below a folder but its own list, as paths with ``/``; links are not followed."""

    def fail(error: OSError) -> None:
        raise error

    for place, folders, files in os.walk(folder, onerror=fail):
        below = Path(place).relative_to(folder)
        for name in sorted(folders) + sorted(files):
            path = (below / name).as_posix()
            if path != LISTING_NAME:
                yield path


_MAX_SMALL_BYTES = 64 * 2**20
"""No list that a person or a tool writes about tensors comes near this; a wrong file may be far larger."""

# A disk allows 255 bytes; a character takes up to four, and a random ending is added.
_MAX_STEM = 50
# A single file that we write beside folders is a JUnit report; this is how its beginning is known.
_REPORT_START, _REPORT_ROOT, _LOOKED_AT_BYTES = b"<?xml", b"<testsuites", 4096


@contextlib.contextmanager
def reading(path: Path, *, what: str) -> Iterator[None]:
    """Turn any operating-system error while reading `path` into one that says what to do."""
    try:
        yield
    except FileNotFoundError as error:
        raise BadInput(
            english("{what} {path} does not exist.", what=what, path=path), fix=english("check the path")
        ) from error
    except PermissionError as error:
        raise BadInput(
            english("{what} {path} may not be read.", what=what, path=path),
            fix=english("chmod u+r '{path}', or run as its owner", path=path),
        ) from error
    except OSError as error:
        reason = error.strerror or str(error)
        raise BadInput(
            english("{what} {path} cannot be read: {reason}.", what=what, path=path, reason=reason),
            fix=english("check the path and the disk"),
        ) from error


def regular_file(path: Path, *, what: str) -> int:
    """Give the size of a file, and refuse what is none: a pipe or a device could be read for ever.

    Args:
        path: The file.
        what: What it is, as the start of a sentence ("The model").
    """
    if "\0" in str(path):
        raise BadInput(
            english("{what} {path} does not exist: no path holds a NUL.", what=what, path=shown(path)),
            fix=english("check the path"),
        )
    with reading(path, what=what):
        status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        kind = english("a folder") if stat.S_ISDIR(status.st_mode) else english("a pipe or a device")
        raise BadInput(
            english("{what} {path} is {kind}, not a file.", what=what, path=path, kind=kind),
            fix=english("give the path of a regular file"),
        )
    return status.st_size


def is_there(path: Path, *, file: bool = False) -> bool:
    """Whether something has this name, or a file has; nothing has one that no disk can take."""
    try:
        return path.is_file() if file else path.exists()
    except (OSError, ValueError):
        return False


def begins(path: Path, *starts: bytes) -> bool:
    """Whether a file is there and begins with one of these."""
    if not path.is_file():
        return False
    with reading(path, what=english("The file")), path.open("rb") as file:
        return file.read(max(map(len, starts))).startswith(starts)


def read_small(path: Path, *, what: str) -> bytes:
    """Read a file of text whole; one too large to be such a file is refused."""
    size = regular_file(path, what=what)
    if size > _MAX_SMALL_BYTES:
        limit = _MAX_SMALL_BYTES // 2**20
        raise BadInput(
            english("{what} {path} is larger than {limit} MiB.", what=what, path=path, limit=limit),
            fix=english("check that it is the right file"),
        )
    with reading(path, what=what):
        # What claims to be empty is not even tried: special files of the system do, and may never answer.
        return path.read_bytes() if size else b""


@contextlib.contextmanager
def writing(path: Path, *, option: str = "-o") -> Iterator[None]:
    """Turn any operating-system error while writing to `path`, the value of `option`, into advice."""
    try:
        yield
    except OSError as error:
        raise _not_written(path, error, option=option) from error


def _not_written(path: Path, error: OSError, *, option: str = "-o") -> BadInput:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        fix = english("free some space or write to another disk; nothing incomplete was left behind")
        return BadInput(english("The disk is full: {path} could not be written.", path=path), fix=fix)
    reason = error.strerror or str(error)
    fix = english("choose a path that can be written with {option}", option=option)
    return BadInput(english("{path} could not be written: {reason}.", path=path, reason=reason), fix=fix)


def write_text(path: Path, text: str) -> None:
    """Write a text file whole or not at all, as UTF-8 with line ends as they are; see `write_bytes`.

    Bytes of file names that are not UTF-8 are spelled.
    """
    write_bytes(path, shown(text).encode("utf-8"))


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file whole or not at all, replacing an old one only when the new one is complete.

    A link is followed: what it points to is replaced, not the link.
    """
    with writing(path):
        target = Path(os.path.realpath(path))
        if target.exists() and not target.is_file():
            raise BadInput(
                english("{path} is a folder, a pipe or a device, not a file.", path=path),
                fix=english("choose another path"),
            )
        target.parent.mkdir(parents=True, exist_ok=True)
        with staged_file(target) as staged:
            staged.write_bytes(content)
            staged.replace(target)
            add_to_list(target)


def check_output_file(path: Path, *, force: bool, option: str, starts: tuple[bytes, ...] = ()) -> None:
    """Say at once, before any work, when a file cannot be written or would replace something of the user's.

    Args:
        path: The file to be written.
        force: Replace an earlier report of ours.
        option: The option that names it, for messages (``--junit``).
        starts: By one of these beginnings an earlier one is known; by those of JUnit's where there are none.
    """
    another = english("choose another file with {option}", option=option)
    with writing(path, option=option):
        if not path.exists():
            _check_parent(path, fix=another)
            clear_up(Path(os.path.realpath(path)))
            return
        if not path.is_file():
            kind = english("a folder") if path.is_dir() else english("a pipe or a device")
            raise BadInput(english("{path} exists and is {kind}, not a file.", path=path, kind=kind), fix=another)
    if not force:
        raise BadInput(
            english("{path} exists.", path=path),
            fix=english("add --force to replace it, or {another}", another=another),
        )
    with reading(path, what=english("The file")), path.open("rb") as file:
        start = file.read(_LOOKED_AT_BYTES)
    is_ours = start.startswith(starts) if starts else start.startswith(_REPORT_START) and _REPORT_ROOT in start
    if not is_ours:
        what = english("{path} exists and does not look like a file that roundoff wrote.", path=path)
        raise BadInput(what, fix=english("{another}; --force replaces only earlier results", another=another))


@contextlib.contextmanager
def output_directory(path: Path, *, marker: str | tuple[str, ...], force: bool = False) -> Iterator[Path]:
    """Fill a directory that appears under its name only once it is complete.

    Files go to a neighbour called ``<name>.partial-<random>``; when the block ends without an error a hidden
    list of them is added and it is renamed to `path`, otherwise it is removed.

    Args:
        path: Where the result goes. It must not exist, be an empty directory, or, with `force`, be an earlier
            result of ours to which nothing was added. A link to such a directory stays a link.
        marker: File that every result of this kind contains (one of several); `force` does not replace a result
            of another kind.
        force: Replace an earlier result.
    """
    check_output_directory(path, marker=marker, force=force)
    target = Path(os.path.realpath(path))
    staged, claim, done = target, None, False
    try:
        with writing(path):
            target.parent.mkdir(parents=True, exist_ok=True)
            staged, claim = make_claimed(target.parent, _staged_start(target))
            yield staged
            list_folder(staged)
            _swap_in(staged, path, marker=marker, force=force)
        done = True
    except BadInput as error:
        # Who fills the folder knows only its passing name.
        if isinstance(error.__cause__, OSError) and str(staged) in error.what:
            raise _not_written(path, error.__cause__) from error
        raise
    finally:
        if not done and staged != target:
            shutil.rmtree(staged, ignore_errors=True)
        if claim is not None:
            os.close(claim)


def _staged_start(target: Path) -> str:
    return f"{target.name[:_MAX_STEM]}.partial-"


def clear_up(target: Path) -> None:
    """Remove what killed runs left beside a result; one that they had moved away for a new one is put back."""
    for left in abandoned(target.parent, ".", PART):
        _remove(left)
        say_removed(left)
    for left in abandoned(target.parent, f"{target.name[:_MAX_STEM]}.old-"):
        if not target.exists():
            left.rename(target)
            say_taken_up(target)
        else:
            remove_listed(left)
            say_removed(left)
    for left in abandoned(target.parent, _staged_start(target)):
        # With a list it is a whole result that was being exchanged, to which something may have been added.
        if (left / LISTING_NAME).is_file():
            remove_listed(left)
        else:
            shutil.rmtree(left, ignore_errors=True)
        say_removed(left)


# Who gives one of these expects a file of that kind, and would look for it in vain.
_FILE_ENDINGS = frozenset({".onnx", ".json", ".html", ".csv", ".tflite", ".prototxt"})


def check_output_directory(path: Path, *, marker: str | tuple[str, ...], force: bool, option: str = "-o") -> None:
    """Say at once, before any work, when `output_directory` would refuse this path, the value of `option`."""
    another = english("choose another folder with {option}", option=option)
    with writing(path, option=option):
        _check_parent(path, fix=another)
        clear_up(Path(os.path.realpath(path)))
        if not path.exists():
            if path.suffix.lower() in _FILE_ENDINGS:
                what = english("{path} is to be a folder, and is named like a file.", path=path)
                fix = english("name a folder: {option} {folder}", option=option, folder=path.with_suffix(""))
                raise BadInput(what, fix=fix)
            return
        if not path.is_dir():
            raise BadInput(english("{path} exists and is a file.", path=path), fix=another)
        _check_replaceable(path, option)
    _check_content(path, marker=marker, force=force, option=option)


def _check_content(
    place: Path, *, marker: str | tuple[str, ...], force: bool, option: str = "-o", path: Path | None = None
) -> None:
    """Refuse a folder that is not empty and that nobody asked to replace; `path` is what it is called."""
    path, another = path or place, english("choose another folder with {option}", option=option)
    with reading(path, what=english("The output folder")):
        if not any(place.iterdir()):
            return
        foreign = foreign_files(place, most=3)
        markers = (marker,) if isinstance(marker, str) else marker
        known = any((place / name).is_file() for name in markers)
    if foreign:
        what = english(
            "{path} exists and holds files that roundoff did not write: {foreign}.",
            path=path,
            foreign=", ".join(foreign),
        )
        raise BadInput(
            what,
            fix=english(
                "move them away or choose another {option}; --force replaces only earlier results", option=option
            ),
        )
    if not known:
        what = english(
            "{path} holds a result of another kind: it has no {markers}.", path=path, markers=" or ".join(markers)
        )
        raise BadInput(what, fix=another)
    if not force:
        fix = english("add --force to replace it, or choose another {option}", option=option)
        raise BadInput(english("{path} already holds a result.", path=path), fix=fix)


def _check_parent(path: Path, *, fix: str) -> None:
    """Refuse a path below something that is no folder, or in a place where nothing can be made."""
    if path.is_symlink() and not path.exists():
        raise BadInput(english("{path} is a link that leads nowhere.", path=path), fix=fix)
    place = Path(os.path.realpath(path)).parent
    while not place.exists():
        place = place.parent
    if not place.is_dir():
        raise BadInput(english("{path} cannot be made: {place} is not a folder.", path=path, place=place), fix=fix)
    # Only trying tells: rights, read-only disks and special file systems all differ.
    trial, claim = make_claimed(place, ".", PART)
    trial.rmdir()
    if claim is not None:
        os.close(claim)


def _check_replaceable(folder: Path, option: str) -> None:
    """Refuse a folder that cannot be exchanged for another: one in use, or the root of a disk."""
    here = os.path.realpath(os.curdir)
    if Path(here).is_relative_to(os.path.realpath(folder)) or os.path.ismount(folder):
        what = english(
            "{folder} is the current folder, holds it, or is a disk of its own; it cannot be replaced.",
            folder=folder,
        )
        raise BadInput(
            what, fix=english("name a folder in it, as in {option} {folder}", option=option, folder=folder / "out")
        )


def _swap_in(staged: Path, path: Path, *, marker: str | tuple[str, ...], force: bool) -> None:
    """Give a folder its name; one that stands there is looked at again once nobody can reach it under that name.

    Raises:
        BadInput: In the meantime somebody put there what may not be replaced; the new folder stays beside it.
    """
    target = Path(os.path.realpath(path))
    try:
        # Over nothing, or an empty folder; a full one is refused by the system.
        os.rename(staged, target)  # noqa: PTH104 - both names stand side by side
        return
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST, errno.ENOTDIR):
            raise
    exchanged = target.is_dir() and exchange(staged, target)
    old = staged
    if not exchanged:
        old = target.with_name(staged.name.replace(".partial-", ".old-"))
        os.rename(target, old)  # noqa: PTH104
    try:
        _check_content(old, marker=marker, force=force, path=path)
        if not exchanged:
            staged.rename(target)
    except (BadInput, OSError) as error:
        if exchanged:
            exchange(staged, target)
        else:
            old.rename(target)
        if isinstance(error, OSError):
            raise
        kept = _free_name(target)
        staged.rename(kept)
        what = english(
            "{path} was filled while this run was at work, and stays as it is; this result is in {kept}.",
            path=path, kept=kept,
        )  # fmt: skip
        raise BadInput(what, fix=english("mv '{kept}' to where you want it", kept=kept)) from error
    remove_listed(old)


def _free_name(target: Path) -> Path:
    number = 2
    while (named := target.with_name(f"{target.name[:_MAX_STEM]}-{number}")).exists():
        number += 1
    return named


# The files a model consists of: one for ONNX, two for Caffe, which are given as one.

_TEXT, _NUMBERS = ".prototxt", (".caffemodel", ".caffemodel.h5")
_BOTH = english("name both files with a comma between them: net.prototxt,net.caffemodel")


def is_model(path: Path) -> bool:
    """Whether a path names a model, by its ending: .onnx, .tflite, .xml (OpenVINO), .prototxt, or a Caffe pair."""
    return path.suffix.lower() in (".onnx", ".tflite", ".xml") or is_caffe(path)


def is_caffe(path: Path) -> bool:
    """Whether a path names a Caffe net: a .prototxt, a .caffemodel (or .h5), or both with a comma between them."""
    return path.name.lower().endswith((_TEXT, *_NUMBERS))


def caffe_pair(path: Path) -> tuple[Path, Path | None]:
    """The .prototxt and the .caffemodel of a Caffe net; None where there is none, as of a net without numbers.

    Args:
        path: Both with a comma between them, in either order; or the .prototxt, next to which the .caffemodel
            lies: the one of the same name, ``x_weights`` for ``x_model``, or the only one there is.

    Raises:
        BadInput: One of them cannot be told.
    """
    parts = _parts(path)
    if len(parts) == 2:
        texts, numbers = (
            [part for part in parts if part.name.lower().endswith(kind)] for kind in (_TEXT, _NUMBERS)
        )
        if len(texts) != 1 or len(numbers) != 1:
            raise BadInput(english("{path} does not name a .prototxt and a .caffemodel.", path=path), fix=_BOTH)
        return texts[0], numbers[0]
    if len(parts) > 2 or path.suffix.lower() != _TEXT:
        raise BadInput(english("{path} does not name the .prototxt of a Caffe net.", path=path), fix=_BOTH)
    return path, _beside(path)


def pair_path(prototxt: Path, caffemodel: Path | None) -> Path:
    """The path that stands for two files: the .prototxt alone where it leads to the .caffemodel, else both."""
    if caffemodel is None:
        return prototxt
    with contextlib.suppress(BadInput):
        if caffe_pair(prototxt)[1] == caffemodel:
            return prototxt
    return Path(f"{prototxt},{caffemodel}")


def joined_pairs(words: Sequence[str]) -> list[str]:
    """Words of a command line, the two files of a net that stand one behind the other joined by a comma.

    The numbers may stand first, unless they are the value of an option.
    """
    joined: list[str] = []
    is_pair = False
    for word in words:
        owner, before = ["", "", *joined][-2:]
        first, second = before.lower(), word.lower()
        behind = first.endswith(_TEXT) and second.endswith(_NUMBERS)
        front = first.endswith(_NUMBERS) and second.endswith(_TEXT) and not owner.startswith("-")
        is_pair = (behind or front) and not is_pair and not before.startswith("-")
        if is_pair:
            joined[-1] = f"{before},{word}"
        else:
            joined.append(word)
    return joined


def model_files(path: Path) -> tuple[Path, ...]:
    """The files that a path which names a model stands for."""
    return tuple(file for file in caffe_pair(path) if file is not None) if is_caffe(path) else (path,)


def model_stem(path: Path) -> str:
    """What a model is called: its file's name without the ending."""
    return (caffe_pair(path)[0] if is_caffe(path) else path).stem


def _parts(path: Path) -> list[Path]:
    text = str(path)
    return [path] if "," not in text or path.exists() else [Path(part.strip()) for part in text.split(",")]


def _beside(prototxt: Path) -> Path | None:
    same = prototxt.with_suffix(_NUMBERS[0])
    if not prototxt.is_file():
        return same
    stems = [prototxt.stem]
    if prototxt.stem.endswith("_model"):
        stems.append(f"{prototxt.stem.removesuffix('model')}weights")
    named = (prototxt.with_name(f"{stem}{kind}") for stem in stems for kind in _NUMBERS)
    if found := next((path for path in named if path.is_file()), None):
        return found
    others = sorted(path for path in prototxt.parent.iterdir() if path.name.lower().endswith(_NUMBERS))
    if len(others) < 2:
        return others[0] if others else None
    raise BadInput(
        english(
            "{prototxt} needs a .caffemodel; beside it there are {count}, and none is called {name}.",
            prototxt=prototxt,
            count=len(others),
            name=same.name,
        ),
        fix=_BOTH,
    )


# Kept free when the user gives no limit: this share of what is free, but no more than so much.
_SPARE_SHARE = 0.05
_MOST_SPARE_BYTES = 512 * 2**20


@dataclass(frozen=True, slots=True)
class DiskBudget:
    """How much may be written, and why so much."""

    limit_bytes: int
    reason: str

    def check(self, size: int, *, claim: str) -> None:
        """Refuse a size beyond the limit.

        Args:
            size: Bytes on disk.
            claim: What takes them, as the start of a sentence ("The dump takes about").

        Raises:
            BadInput: It is more than allowed.
        """
        if size > self.limit_bytes:
            limit = format_size(self.limit_bytes)
            raise BadInput(
                english(
                    "{claim} {format_size} on disk; the limit is {limit} ({reason}).",
                    claim=claim,
                    format_size=format_size(size),
                    limit=limit,
                    reason=self.reason,
                ),
                fix=english(
                    "narrow it with --tensors GLOB or --samples N, write --stats-only, or raise --max-disk"
                ),
            )


def disk_budget(folder: Path, max_disk: int | None) -> DiskBudget:
    """The limit the user gave, or what is free where `folder` is or will be."""
    if max_disk is not None:
        return DiskBudget(max_disk, "--max-disk")
    place = folder.absolute()
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    spare = min(int(free * _SPARE_SHARE), _MOST_SPARE_BYTES)
    return DiskBudget(free - spare, f"free space less {format_size(spare)}")


_KNOWN: dict[str, tuple[str, str]] = {
    ".pt": (
        english("a PyTorch file"),
        english(
            "torch.onnx.export(module, inputs, 'model.onnx'); activations: "
            "roundoff.torch.capture(module, inputs)"
        ),
    ),
    ".om": (
        english("a compiled model of Ascend"),
        english(
            "give the .onnx it was compiled from; dump the device with msaccucmp or acl.json and "
            "use ascend compare"
        ),
    ),
    ".rknn": (
        english("a compiled model of Rockchip"),
        english(
            "give the .onnx it was built from; rknn.accuracy_analysis(inputs, output_dir=DIR), "
            "then --dumps DIR"
        ),
    ),
    ".mnn": (
        english("a converted model of MNN"),
        english(
            "give the .onnx it was converted from; save its tensors as .npy files named like "
            "those of the model"
        ),
    ),
    ".engine": (
        english("a compiled engine of TensorRT"),
        english(
            "give the .onnx it was built from; polygraphy run model.onnx --trt --save-outputs "
            "out.json, then --dumps out.json"
        ),
    ),
    ".h5": (
        english("a Keras model"),
        english("python -m tf2onnx.convert --keras model.h5 --output model.onnx"),
    ),
    ".pb": (
        english("a TensorFlow graph"),
        english("python -m tf2onnx.convert --graphdef model.pb --inputs x:0 --outputs y:0 --output model.onnx"),
    ),
    ".axmodel": (
        english("a compiled model of Axera"),
        english("give the .onnx it was built from; save what the device computes as .npy files, then --dumps DIR"),
    ),
    ".hbm": (
        english("a compiled model of Horizon"),
        english("give the .onnx it was built from; save what the device computes as .npy files, then --dumps DIR"),
    ),
    ".bmodel": (
        english("a compiled model of Sophgo"),
        english(
            "give the .onnx it was built from; model_runner.py --dump_all_tensors --output "
            "out.npz, then --dumps out.npz"
        ),
    ),
    ".dlc": (
        english("a converted model of Qualcomm"),
        english(
            "give the .onnx it was converted from; snpe-net-run --debug or qnn-net-run --debug, "
            "then --dumps output"
        ),
    ),
    ".gguf": (
        english("weights of llama.cpp, without a graph"),
        english("give the network as .onnx: optimum-cli export onnx --model NAME DIR"),
    ),
}  # fmt: skip
_SAME = {".pth": ".pt", ".ckpt": ".pt", ".plan": ".engine", ".trt": ".engine", ".keras": ".h5", ".hbbin": ".hbm"}


def foreign_file(path: Path) -> tuple[str, str] | None:
    """What a file of another tool is, by its ending, and what to do with it; None for all others."""
    suffix = path.suffix.lower()
    return _KNOWN.get(_SAME.get(suffix, suffix))
