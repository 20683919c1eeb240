"""Where results are stored: as Horizon's tools do, and as data beside it."""

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from roundoff.core.files import write_bytes, write_text
from roundoff.core.names import FileNames
from roundoff.plots.canvas import require_matplotlib
from roundoff.report.documents import json_text
from roundoff.vendors.horizon.errors import WrongType, WrongValue

__all__ = ["DEFAULT_FOLDER", "result_folder", "save_pictures", "save_tables"]

DEFAULT_FOLDER = "./debug_result/"


def result_folder(save_dir: Any) -> Path:
    """Where results go.

    Raises:
        WrongType: It is not a path.
        WrongValue: Something else than a folder is there.
    """
    if not isinstance(save_dir, str | os.PathLike):
        raise WrongType(f"save_dir is {save_dir!r}, not a path.", fix="give a folder, as in save_dir='./'")
    folder = Path(save_dir)
    taken = next((each for each in (folder, *folder.parents) if each.exists() and not each.is_dir()), None)
    if taken is not None:
        raise WrongValue(f"save_dir {folder} cannot be made: {taken} is not a folder.", fix="give another folder")
    return folder


def save_tables(folder: Path, stem: str, *, log: str, csv: str, data: object) -> None:
    """Write a table as it is printed, as CSV, and as JSON; earlier ones are replaced."""
    write_text(folder / f"{stem}.log", f"{log}\n")
    write_text(folder / f"{stem}.csv", csv)
    write_text(folder / f"{stem}.json", json_text(data))


def save_pictures(folder: Path, painters: Iterable[tuple[str, Callable[[], bytes]]]) -> None:
    """Draw pictures, each into a file named after what it shows; earlier ones are replaced.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    require_matplotlib()
    names = FileNames()
    for name, paint in painters:
        write_bytes(folder / f"{names.stem(name)}.png", paint())
