"""Options that take several names."""

import argparse
from collections.abc import Iterable
from pathlib import Path

__all__ = ["take_model"]


def take_model(args: argparse.Namespace, lists: Iterable[list[str]]) -> None:
    """Give FLOAT back what an option with several values took: ``--only conv1 conv2 float.onnx``.

    Args:
        args: Parsed options; `model` is filled in where it is missing.
        lists: The values of such options; a last one that is a model is removed.
    """
    for names in lists:
        if args.model is None and names and names[-1].endswith(".onnx") and Path(names[-1]).is_file():
            args.model = Path(names.pop())
