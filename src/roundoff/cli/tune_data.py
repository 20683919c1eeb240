"""What a search runs on: samples that calibrate, samples that judge, a test set, and their labels."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from roundoff.cli.data_options import given_options, samples_from
from roundoff.errors import BadInput

if TYPE_CHECKING:
    from roundoff.core.tensors import Array
    from roundoff.graph.load import Model
    from roundoff.run.feeds import Samples
    from roundoff.search.settings import TuneData, TuneSettings

__all__ = ["with_data"]


def with_data(
    args: argparse.Namespace, settings: "TuneSettings", model: "Model"
) -> "tuple[TuneSettings, TuneData]":
    """Open all samples, and the labels that go with them.

    Args:
        args: The options.
        settings: What they ask for, without labels.
        model: What is searched for.

    Raises:
        BadInput: Samples or labels do not fit, or an option for reading files has no effect.
    """
    from dataclasses import replace

    from roundoff.search.evaluators import fed_samples
    from roundoff.search.judge_options import calibration_in, with_evaluator
    from roundoff.search.settings import TestSet, TuneData

    judge = with_evaluator(settings.judge)
    feeds = calibration_in(judge) if not args.data else None
    calibration: Samples
    if feeds is None:
        calibration = _opened(args, model, args.data, args.samples)
    else:
        _refuse_unread(args)
        limits = {"most": args.samples, "max_memory": args.max_memory}
        calibration = fed_samples(feeds, model, path=judge.origin, **limits)
    evaluation = calibration
    if args.eval_data is not None or args.eval_samples is not None:
        evaluation = _opened(args, model, args.eval_data or args.data, args.eval_samples)
    cut = args.samples if evaluation is calibration else args.eval_samples
    judge = replace(judge, labels=_labels(args.labels, evaluation, cut=cut))
    test = None
    if args.test_data:
        samples = _opened(args, model, args.test_data, None)
        test = TestSet(samples, _labels(args.test_labels, samples, cut=None))
    return replace(settings, judge=judge), TuneData(calibration, evaluation, test)


def _refuse_unread(args: argparse.Namespace) -> None:
    """Options for reading files mean nothing where the evaluator feeds the model and no files are read."""
    given = [option for option in given_options(args) if option != "--samples"]
    if given and not args.eval_data and not args.test_data:
        what = f"{given[0]} has no effect without --data: calibration() of the evaluator feeds the model."
        raise BadInput(what, fix=f"add --data, or leave {given[0]} out")


def _opened(args: argparse.Namespace, model: "Model", data: list[str] | None, limit: int | None) -> "Samples":
    from roundoff.graph.interface import inputs
    from roundoff.run.feeds import NO_INPUTS

    specs = inputs(model)
    named = argparse.Namespace(**{**vars(args), "data": data, "samples": limit})
    return samples_from(named, specs) if specs else NO_INPUTS


def _labels(path: Path | None, samples: "Samples", *, cut: int | None) -> "Array | None":
    from roundoff.samples.labels import load_labels

    if path is None:
        return None
    found = load_labels(path, samples.names)
    # Whoever takes the first samples only means the first labels too.
    return found[: len(samples.names)] if cut is not None and found.size > len(samples.names) else found
