"""The folder of a search: what it holds while the search goes on, and what it delivers."""

import contextlib
import hashlib
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from roundoff.core.files import (
    add_to_list,
    check_output_directory,
    foreign_files,
    list_folder,
    output_directory,
    reading,
    remove_listed,
    write_text,
    writing,
)
from roundoff.core.target import Target
from roundoff.errors import BadInput
from roundoff.graph.insertion import deploy_model, fake_quant_model
from roundoff.graph.save import save_model
from roundoff.quantize.calibration.files import save_calibration
from roundoff.quantize.parameters import Numbers
from roundoff.quantize.plan_file import CORRECTED, PLAN_NAME, PLAN_SCHEMA, SavedPlan, plan_json, saved_numbers
from roundoff.quantize.recipes import Built
from roundoff.search.result import Trial
from roundoff.search.settings import JOURNAL_NAME

__all__ = ["BEST_NAME", "Delivery", "discard_folder", "open_folder"]

BEST_NAME = "best"
"""The folder in a search's folder that holds the best model so far."""

_MARKER = "search.txt"
_STATISTICS = "calibration.npz"
# Of files in the way so many are looked for, and so many named.
_MANY, _NAMED = 1000, 3
_ABOUT = "A search of roundoff tune. While it is under way the best model so far is in best/; --resume goes on.\n"


def open_folder(folder: Path, *, resume: bool, force: bool) -> bool:
    """Make the folder of a search, or open one to go on.

    Args:
        folder: The folder.
        resume: Go on with the search it holds, if there is one.
        force: Remove an earlier search first; nothing that we did not write is removed.

    Returns:
        Whether there is a search to go on with.

    Raises:
        BadInput: It holds something else, or a search and nobody said what to do with it.
    """
    if not folder.is_dir() or not any(folder.iterdir()):
        check_output_directory(folder, marker=_MARKER, force=False)
        _begin(folder)
        return False
    if not (folder / _MARKER).is_file():
        raise BadInput(f"{folder} is not empty, and holds no search.", fix="choose another folder with -o")
    if resume:
        _sweep(folder)
        return (folder / JOURNAL_NAME).is_file()
    if not force:
        what = f"{folder} already holds a search."
        raise BadInput(what, fix="add --resume to go on with it, --force to begin anew, or choose another -o")
    _sweep(folder)
    _claim(folder)
    best = folder / BEST_NAME
    with reading(folder, what="The output folder"):
        foreign = [name for name in foreign_files(folder, most=_MANY) if name.split("/")[0] != BEST_NAME]
        foreign += foreign_files(best, most=_MANY) if best.is_dir() else []
    if foreign:
        what = f"{folder} holds files that roundoff did not write: {', '.join(foreign[:_NAMED])}."
        raise BadInput(what, fix="move them away or choose another -o; --force replaces only earlier results")
    _remove(folder)
    _begin(folder)
    return False


def discard_folder(folder: Path) -> None:
    """Remove the folder of a search that came to nothing; one with a model in it stays."""
    if (folder / _MARKER).is_file() and not (folder / BEST_NAME).is_dir():
        _claim(folder)
        _remove(folder)


def _remove(folder: Path) -> None:
    if (folder / BEST_NAME).is_dir():
        remove_listed(folder / BEST_NAME)
    remove_listed(folder)


def _claim(folder: Path) -> None:
    """Count what a search writes as it goes among what we wrote."""
    names = (JOURNAL_NAME, f"{JOURNAL_NAME}-journal", _STATISTICS)
    for file in (*(folder / name for name in names), *folder.glob("statistics-*.npz")):
        if file.is_file():
            add_to_list(file)


def _begin(folder: Path) -> None:
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    write_text(folder / _MARKER, _ABOUT)
    list_folder(folder)


def _sweep(folder: Path) -> None:
    """Remove what a killed run left of the best model that it was about to exchange."""
    for old in folder.glob(f"{BEST_NAME}.old-*"):
        remove_listed(old)
    for staged in folder.glob(f"{BEST_NAME}.partial-*"):
        shutil.rmtree(staged, ignore_errors=True)
    for part in folder.glob(".*.partial"):
        with contextlib.suppress(OSError):
            part.unlink()


@dataclass(frozen=True, slots=True)
class Delivery:
    """Writes models of a search.

    Attributes:
        folder: The folder of the search.
        prefix: How the models' names start.
        model: The float model, as the user gave it.
        model_sha256: Its hash.
        target: For which chip.
        version: Of roundoff.
    """

    folder: Path
    prefix: str
    model: str
    model_sha256: str
    target: Target
    version: str

    def best_so_far(self, built: Built, trial: Trial) -> None:
        """Exchange the best model so far, whole."""
        place = self.folder / BEST_NAME
        with output_directory(place, marker=PLAN_NAME, force=True) as staged:
            self._write(staged, built, note=f"the best so far: {trial.change}")

    def final(self, built: Built, texts: Mapping[str, str]) -> tuple[Path, ...]:
        """Write the answer, and remove the best so far.

        Args:
            built: The answer.
            texts: More files, by name.

        Returns:
            What was written.
        """
        names = self._write(self.folder, built, note="")
        for name, text in texts.items():
            write_text(self.folder / name, text)
        _claim(self.folder)
        if (self.folder / BEST_NAME).is_dir():
            remove_listed(self.folder / BEST_NAME)
        return tuple(self.folder / name for name in (*names, *texts))

    def _write(self, folder: Path, built: Built, *, note: str) -> tuple[str, ...]:
        """Write models, plan and statistics; the plan comes last."""
        float_model, quantizers = built.quantized.float_model, built.quantized.quantizers
        files = {name: f"{self.prefix}_{name}_model.onnx" for name in ("fake_quant", "deploy")}
        save_model(fake_quant_model(float_model, quantizers), folder / files["fake_quant"], replace=True)
        save_model(deploy_model(float_model, quantizers), folder / files["deploy"], replace=True)
        model, digest = self.model, self.model_sha256
        if built.recipe.transforms:
            # Scales belong to the transformed model; with them, the user's own would be something else.
            files["float"] = f"{self.prefix}_float_model.onnx"
            save_model(float_model, folder / files["float"], replace=True)
            with (folder / files["float"]).open("rb") as file:
                model, digest = str(self.folder / files["float"]), hashlib.file_digest(file, "sha256").hexdigest()
        if any(each.codes is not None for each in quantizers):
            # Corrected codes are in the models alone.
            files[CORRECTED] = files["fake_quant"]
        save_calibration(built.calibration, folder / _STATISTICS, model_hash=digest)
        numbers = Numbers(quantizers, ())
        saved = SavedPlan(
            schema=PLAN_SCHEMA,
            roundoff=self.version,
            model=model,
            model_sha256=digest,
            method=built.recipe.method or self.target.calibration.method,
            samples=built.calibration.samples,
            arithmetic=self.target.arithmetic,
            plan=built.plan,
            numbers=saved_numbers(numbers),
            files=files,
            notes=(*built.notes, *((note,) if note else ())),
        )
        write_text(folder / PLAN_NAME, plan_json(saved))
        return (*dict.fromkeys(files.values()), _STATISTICS, PLAN_NAME)
