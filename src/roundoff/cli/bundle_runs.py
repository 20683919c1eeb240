"""Runs of commands that look into a quantized model, or made one, as sources of bundles."""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from roundoff.api.subject import Subject
from roundoff.cli.bundle_case import Extra, Source
from roundoff.cli.subject import open_subject
from roundoff.cli.terminal import Terminal
from roundoff.errors import BadInput

if TYPE_CHECKING:
    from roundoff.case.disguise import Found
    from roundoff.case.excerpt import Case, Chosen
    from roundoff.core.document import RunDocument

__all__ = ["RunExtras", "source_of"]

# They leave a quantized model in their folder.
_MAKERS = ("quantize", "tune")
_NO_SAMPLES = "The run had no samples, so that there is no fault to show."
_DATA = "--data data/worst.txt"


def source_of(document: "RunDocument", again: argparse.Namespace, terminal: Terminal, *, folder: Path) -> Source:
    """What a run analyzed or made.

    Args:
        document: The run.
        again: Its options.
        terminal: Told of progress.
        folder: Where the run is.

    Raises:
        BadInput: There is nothing quantized in it, or no sample.
        ModelFailed: A model cannot be run.
    """
    from roundoff.core.names import shown
    from roundoff.graph.load import load_model

    subject = _subject(document, again, terminal, folder)
    if not again.data and not subject.quantized.float_model.proto.graph.input:
        raise BadInput(_NO_SAMPLES, fix="run it with --data")
    return Source(
        kind=document.command[1],
        quantized=subject.quantized,
        samples=subject.samples,
        original=subject.quantized.float_model if again.model is None else load_model(again.model),
        model="model/float.onnx" + ("" if again.model is None else f" ({shown(again.model.name)})"),
        words=subject.words or "quantized as in config/quantizers.csv",
        command=document.command,
        environment=document.environment,
        paths=tuple(each.path for each in document.inputs),
        diagnosis=document.diagnosis,
    )


def _subject(document: "RunDocument", again: argparse.Namespace, terminal: Terminal, folder: Path) -> Subject:
    """What the run analyzed; what quantize and tune made is read from their folder."""
    name = document.command[1]
    if name not in _MAKERS:
        if again.quantized is None and again.target is None:
            what = f"The run of {name} looked at a float model: nothing in it is quantized."
            raise BadInput(what, fix="run it with --quantized or --target")
        if not again.data:
            raise BadInput(_NO_SAMPLES, fix="run it with --data")
        return open_subject(again, terminal)
    if not again.data:
        why = "was quantized without samples (--statistics)" if name == "quantize" else "was fed by the evaluator"
        what = f"The model {why}, so that there is no fault to show."
        raise BadInput(what, fix=f"type 'roundoff layers --quantized {folder} --data ... -o RUN', and bundle RUN")
    stored = argparse.Namespace(**{**vars(again), "quantized": folder, "target": None})
    for option in ("calibration", "weight_method", "rules"):
        setattr(stored, option, None)
    stored.calibration_option, stored.set = [], []
    return open_subject(stored, terminal)


@dataclass(frozen=True, slots=True)
class RunExtras:
    """Plan, rules and target of a run, and its document.

    Attributes:
        document: The run.
        again: Its options.
        folder: Where it is.
    """

    document: "RunDocument"
    again: argparse.Namespace
    folder: Path

    def open(self, case: "Case", chosen: "Chosen") -> Extra:
        """Everything that the run had."""
        from roundoff.core.document import to_json

        del chosen
        members = {**self._configuration(), "run.json": to_json(self.document).encode()}
        target = self._target_name("config/target.toml")
        return Extra(members, target, self._requantize(target), self._recalibrated(case))

    def secret(self, found: "Found", chosen: "Chosen") -> Extra:
        """The target, unless it is the user's own."""
        del found, chosen
        target = self._target_name("one of the sender's own")
        return Extra(
            self._target(own=False), target, self._requantize(self.again.target if self._built_in else "")
        )

    @property
    def _built_in(self) -> bool:
        return bool(self.again.target) and not Path(self.again.target).is_file()

    def _target_name(self, own: str) -> str:
        if not self.again.target:
            return ""
        return str(self.again.target) if self._built_in else own

    def _requantize(self, target: str) -> tuple[str, ...]:
        # What tune found takes more than the target to be made again.
        if not target or self.again.words[0] == "tune":
            return ()
        return (f"roundoff quantize model/float.onnx --target {target} {_DATA} -o again",)

    def _configuration(self) -> dict[str, bytes]:
        """Plan, rules and target, as far as the run had them."""
        from roundoff.core.files import read_small
        from roundoff.quantize.plan_file import PLAN_NAME

        members = self._target(own=True)
        # What diagnose --fix left in its folder is the repaired model's.
        made = self.folder if self.again.words[0] in _MAKERS else None
        for place in (made, getattr(self.again, "quantized", None)):
            if place is not None and (place / PLAN_NAME).is_file():
                members["config/plan.json"] = read_small(place / PLAN_NAME, what="The plan")
                break
        if getattr(self.again, "rules", None) is not None:
            members["config/rules.toml"] = read_small(self.again.rules, what="The rules")
        return members

    def _target(self, *, own: bool) -> dict[str, bytes]:
        """The target's file; one of the user's own only where that is allowed."""
        from roundoff.quantize.targets.loading import target_text

        if not self.again.target or not (self._built_in or own):
            return {}
        return {"config/target.toml": target_text(self.again.target).encode()}

    def _recalibrated(self, case: "Case") -> str:
        """What calibrating on the chosen samples alone gives: the minimal calibration set of the vendor's form."""
        from roundoff.cli.quantize_options import settings_from
        from roundoff.graph.load import load_model
        from roundoff.messages.numbers import counted
        from roundoff.quantize.pipeline import quantize_model

        if not self.again.target or self.again.model is None or self.again.words[0] == "tune":
            return ""
        result = quantize_model(load_model(self.again.model), case.samples, settings_from(self.again))
        few = counted(len(case.samples.names), "sample")
        return f"calibrated on {few} alone: {result.best.sqnr_db:.4g} dB at the worst output"
