"""The words of an earlier command, and what they name opened again; `roundoff.case.sources.EarlierRun`."""

import argparse
from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from roundoff.api.call import Call, DataOptions
from roundoff.api.comparison import SidesAsked, compare_sides, open_sides
from roundoff.api.diagnosis import open_dumps
from roundoff.api.inputs import open_data
from roundoff.api.subject import SubjectOptions, open_subject, quantize_settings
from roundoff.case.sources import EarlierRun, GivenPaths, OpenedModel, OpenedSides
from roundoff.cli import parse_words
from roundoff.cli.options import DATA, LIMITS, QUANTIZATION, SUBJECT, values
from roundoff.core.document import RunDocument
from roundoff.core.files import is_model
from roundoff.core.progress import Progress
from roundoff.errors import BadInput
from roundoff.messages.message import english
from roundoff.run.budget import RunBudget

if TYPE_CHECKING:
    from roundoff.api.subject import Subject
    from roundoff.core.tensors import InputSpec, TensorSource
    from roundoff.diagnosis.devices.readout import KnownNames
    from roundoff.quantize.pipeline import QuantizeSettings
    from roundoff.run.capture import Samples

# These stay a comparison's own when it is made of a diagnosis.
_OF_COMPARISON = ("reference", "candidate", "model", "words", "command", "output")


def read_command(file: Path, document: RunDocument, *, limits: RunBudget, progress: Progress) -> EarlierRun:
    """A run, its options as its own parser reads them.

    Raises:
        BadInput: This version does not take them.
    """
    words = list(document.command[1:])
    if words[:1] == ["quantize"] and not any(word.startswith(("-o", "--output")) for word in words):
        # A function saves what it made afterwards; the command has to be told where it goes.
        words.append(f"--output={file.parent}")
    try:
        found = parse_words(words)
    except SystemExit:
        found = None
    if found is None:
        what = english(
            "The command of {file} is not one that this version takes: {command}.",
            file=file,
            command=" ".join(document.command),
        )
        raise BadInput(what, fix=english("run it again with this version of roundoff"))
    found.words = words
    found.threads, found.max_memory = limits.threads, limits.max_memory
    return CommandRun(file.parent, document, found, progress)


@dataclass(frozen=True, slots=True, eq=False)
class CommandRun:
    """A run of a command of ours.

    Attributes:
        folder: Where it is.
        document: What it found.
        options: The options of its command.
        progress: Told of what is opened again.
    """

    folder: Path
    document: RunDocument
    options: argparse.Namespace
    progress: Progress

    @property
    def given(self) -> GivenPaths:
        """What it was given, as far as a case depends on it."""
        names = ("model", "quantized", "target", "rules", "dumps", "reference")
        paths = {name: getattr(self.options, name, None) for name in names}
        return GivenPaths(**paths, data=bool(getattr(self.options, "data", None)))

    def model(self, *, stored: Path | None = None) -> OpenedModel:
        """What it analyzed; with `stored`, what it left in that folder."""
        return self._subject(self.options if stored is None else _unquantized(self.options, quantized=stored))

    def _subject(self, options: argparse.Namespace) -> "Subject":
        said = {**values(options, (*SUBJECT, LIMITS, DATA)), "progress": self.progress}
        model = said.pop("model")
        return open_subject(Call("subject", said, SubjectOptions), model, required=False)

    def device(self) -> "tuple[OpenedModel, TensorSource, KnownNames]":
        """The model that a device was given, what the device wrote, and what is known of its names."""
        options = self.options
        if self.document.command[1] == "compare":
            if not is_model(options.reference) or is_model(options.candidate):
                raise BadInput(
                    "The run compared {reference} with {candidate}; what a device should compute is only "
                    "known where the reference is a model, and the candidate a dump.",
                    fix=english(
                        "run roundoff diagnose MODEL --data SAMPLES --dumps DIR -o RUN, and reproduce that"
                    ),
                    reference=options.reference,
                    candidate=options.candidate,
                )
            dump_format = options.candidate_format or options.format
            options = _unquantized(
                options, model=options.reference, dumps=options.candidate, dump_format=dump_format
            )
        opened = self._subject(options)
        form, aliases = options.dump_format, options.aliases
        return opened, *open_dumps(opened, options.dumps, form=form, aliases=aliases, run=options.run)

    def sides(self) -> AbstractContextManager[OpenedSides]:
        """Both sides of a comparison."""
        return open_sides(self._call(self.options), _asked(self.options))

    def _call(self, options: argparse.Namespace) -> Call:
        said: dict[str, Any] = {**values(options, (LIMITS, DATA)), "progress": self.progress}
        return Call("compare", said, DataOptions)

    def compared(self) -> "CommandRun":
        """A diagnosis of dumps as a comparison of the model with them; a comparison as it is."""
        again = self.options
        if self.document.command[1] == "compare":
            return self
        words = ["compare", str(again.model or again.quantized), str(again.dumps)]
        options = argparse.Namespace(**{**vars(parse_words(words)), "words": words})
        for name in vars(options):
            # How samples are read is said by the same options.
            if name not in _OF_COMPARISON and hasattr(again, name):
                setattr(options, name, getattr(again, name))
        options.format = again.dump_format
        comparison, *_ = compare_sides(
            self._call(options), _asked(options), None, channel_axis=options.channel_axis
        )
        return replace(self, document=replace(self.document, comparison=comparison), options=options)

    def samples(self, inputs: "Sequence[InputSpec]") -> "Samples":
        """The samples, for these inputs."""
        how = Call("samples", values(self.options, DATA.options), DataOptions)
        return open_data(self.options.data or [], inputs, how.sample_options(limit=self.options.samples))

    def quantize_settings(self) -> "QuantizeSettings":
        """How it quantized for its target."""
        said = values(self.options, (QUANTIZATION, LIMITS)) | {"target": self.options.target}
        return quantize_settings(Call("quantize", said, SubjectOptions))


def _asked(options: argparse.Namespace) -> SidesAsked:
    """What a comparison is of, and how tensors are matched."""
    formats = (options.reference_format, options.candidate_format, options.format)
    by_value = not options.no_value_matching
    runs = (options.run, options.reference_run)
    return SidesAsked(
        options.reference, options.candidate, options.model, *formats, options.aliases, by_value, *runs
    )


def _unquantized(options: argparse.Namespace, **changed: object) -> argparse.Namespace:
    """The same options without those that say how to quantize, which has been done or is not asked for."""
    none = dict.fromkeys(("quantized", "target", "calibration", "weight_method", "rules"))
    return argparse.Namespace(**{**vars(options), **none, "calibration_option": [], "set": [], **changed})
