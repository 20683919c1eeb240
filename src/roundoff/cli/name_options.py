"""Options that take several names."""

import argparse
from collections.abc import Iterable
from pathlib import Path

from roundoff.core.files import is_model, model_files

__all__ = ["take_model"]


def take_model(args: argparse.Namespace, lists: Iterable[list[str]]) -> None:
    """Give FLOAT back what an option with several values took: ``--only conv1 conv2 float.onnx``.

    Args:
        args: Parsed options; `model` is filled in where it is missing.
        lists: The values of such options; a last one that is a model is removed.
    """
    for names in lists:
        last = Path(names[-1]) if names else Path()
        if args.model is None and is_model(last) and all(file.is_file() for file in model_files(last)):
            args.model = Path(names.pop())
