"""From a model and its configuration to complete records: an evaluator runs the modified model."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from roundoff.vendors.amct.flavour import Files
from roundoff.vendors.amct.gathering import Gathering, forget, gathering_of
from roundoff.vendors.amct.modified import Stage
from roundoff.vendors.amct.records import LayerRecord
from roundoff.vendors.amct.workflow import Opened, begin_balancing, begin_calibration, complete_records

__all__ = ["calibrate_by"]


def calibrate_by(
    evaluator: Any, opened: Opened, *, source: Files, record_file: Path, work: Path
) -> tuple[Opened, dict[str, LayerRecord], Gathering]:
    """Let an evaluator run the modified model; before that once more if layers are to be balanced.

    Args:
        evaluator: Its ``calibration`` is called with the files of the modified model.
        opened: The model.
        source: The files it was read from.
        record_file: Where the factors go.
        work: Folder for the modified model and for what it is fed.

    Returns:
        The model with balanced layers, the records, and what was learned.

    Raises:
        CannotRun: The evaluator did not run the model often enough.
    """
    if any(each.balance is not None for each in opened.config.enabled.values()):
        stage = begin_balancing(opened, record_file)
        _run(evaluator, opened, {}, stage=stage, files=_files(source, work, "balance"))
        forget(stage)
    opened, records, stage = begin_calibration(opened, record_file)
    gathering = _run(evaluator, opened, records, stage=stage, files=_files(source, work, "calibration"))
    try:
        how = opened.flavour.how_to_run
        return opened, complete_records(stage, opened.config, record_file, how=how), gathering
    finally:
        forget(stage)


def _files(source: Files, work: Path, name: str) -> Files:
    return tuple(work / f"{name}{path.suffix}" for path in source)


def _run(
    evaluator: Any, opened: Opened, records: Mapping[str, LayerRecord], *, stage: Stage, files: Files
) -> Gathering:
    opened.flavour.write_modified(files, opened.model, layers=opened.layers, records=records, stage=stage)
    gathering = gathering_of(opened.flavour.read(files))
    gathering.keep_feeds(files[0].with_suffix(".feeds"))
    try:
        evaluator.calibration(*map(str, files))
    except BaseException:
        forget(stage)
        raise
    return gathering
