"""Storing samples as the model is fed with them, so that they can be read again without any options."""

from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np

from roundoff.core.files import write_text, writing
from roundoff.core.names import FileNames
from roundoff.core.tensors import Array

__all__ = ["LIST_NAME", "copy_samples"]

LIST_NAME = "worst.txt"
"""The list file beside them."""


def copy_samples(folder: Path, samples: Iterable[tuple[str, Mapping[str, Array]]], *, heading: str) -> None:
    """Write a folder for each input with a .npy file for each sample, and a list that names them in this order.

    Args:
        folder: An existing folder.
        samples: Name and inputs of each, in the order of the model's.
        heading: First line of the list, a comment.
    """
    folders, files = FileNames(reserved=[LIST_NAME]), FileNames()
    lines = [f"# {' '.join(heading.split())}"]
    for number, (name, feed) in enumerate(samples, start=1):
        words = []
        for key, array in feed.items():
            place = Path(folders.stem(key)) / f"{number:04d}_{files.stem(name)}.npy"
            with writing(folder / place):
                (folder / place).parent.mkdir(exist_ok=True)
                np.save(folder / place, array, allow_pickle=False)
            words.append((key, place.as_posix()))
        # A name with blanks cannot be written; then the order of the inputs says which is which.
        named = len(words) > 1 and not any(key.split() != [key] for key, _ in words)
        lines.append(" ".join(f"{key}:{path}" if named else path for key, path in words))
    write_text(folder / LIST_NAME, "\n".join(lines) + "\n")
