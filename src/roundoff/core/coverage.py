"""What a verdict rests on, as data: outputs, tensors, samples and files judged and not, doubts, and the grade."""

from dataclasses import dataclass, field
from typing import Literal

from roundoff.messages.message import Message, message

WhyUnjudged = Literal[
    "missing", "unmatched", "shape", "nonfinite", "unreadable", "not_numbers", "chance", "indices"
]


@dataclass(frozen=True, slots=True)
class Unjudged:
    """A tensor of which nothing can be said.

    Attributes:
        name: Its name in the reference.
        why: ``missing``: nothing of its size is left on the other side. ``unmatched``: something is, and it is not
            certain that it is this tensor. ``shape``: the shapes differ. ``nonfinite``: it holds, or is computed
            from, NaN or infinite values. ``unreadable``: a sample of it cannot be read. ``not_numbers``: it holds
            no real numbers, or codes without a scale. ``chance``: it differs from run to run.
            ``indices``: it holds indices, and more differ than is usual.
        detail: More of it; empty when there is no more.
    """

    name: str
    why: WhyUnjudged
    detail: str | Message = ""


@dataclass(frozen=True, slots=True)
class OutputCoverage:
    """Which outputs of a network were judged; a verdict is good only when all of them were.

    Attributes:
        judged: Outputs that have a partner of the same shape and scores that are numbers.
        not_judged: The others.
        known: Whether it is known which tensors are outputs; where it is not, any tensor may be one.
        indices: Those that hold class numbers, indices or truth values, and are judged by how many are equal.
    """

    judged: tuple[str, ...]
    not_judged: tuple[Unjudged, ...] = ()
    known: bool = True
    indices: tuple[str, ...] = field(default=(), metadata={"rare": True})

    @property
    def total(self) -> int:
        """How many there are."""
        return len(self.judged) + len(self.not_judged)

    @property
    def complete(self) -> bool:
        """Whether there are outputs, and every one was judged."""
        return bool(self.judged) and not self.not_judged


WhyLeftOut = Literal[
    "not_asked", "few_suffice", "time", "memory", "nonfinite", "unmatched", "unreadable", "shape", "profile",
    "not_placed", "folded", "copy", "unused",
]  # fmt: skip
"""Why some of many were not judged: ``not_asked`` for by the user; ``few_suffice`` for what is measured; no time
or memory; not finite; without a partner; not readable; of another shape; outside what a profile judges; files
that belong to no tensor; tensors that the other side does not have because it computes them with others; tensors
that hold what another one holds, as codes or in another form; tensors that no output is computed from."""


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Some of many that were not judged, for one reason.

    Attributes:
        why: The reason.
        count: How many.
        names: The first of them.
    """

    why: WhyLeftOut
    count: int
    names: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Share:
    """Of so many, how many were judged.

    Attributes:
        there: How many there are.
        judged: How many of them a verdict rests on.
        left_out: The others by reason.
    """

    there: int
    judged: int
    left_out: tuple[LeftOut, ...] = ()


WhyUnplaced = Literal["size", "uncertain", "unreadable"]


@dataclass(frozen=True, slots=True)
class UnplacedFile:
    """A tensor of a dump that is none of the network's, as far as could be told.

    Attributes:
        name: Its name in the dump.
        why: ``size``: no tensor of the network that is left has its size. ``uncertain``: some have, and none is
            certain to be it. ``unreadable``: it cannot be read.
        shape: Its shape.
        could_be: The first of those that have its size.
    """

    name: str
    why: WhyUnplaced
    shape: tuple[int, ...] = ()
    could_be: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CoverageGap:
    """Where a difference starts, when tensors before the first wrong one were not compared.

    Attributes:
        after: The last tensor before it that is right; empty where there is none.
        first: The first one that is wrong.
        tensors: How many between them were not compared.
    """

    after: str
    first: str
    tensors: int


@dataclass(frozen=True, slots=True)
class Coverage:
    """What of everything a verdict rests on.

    Attributes:
        outputs: The outputs of the network.
        tensors: Its tensors; None where a command does not look at them.
        samples: What it was fed.
        files: The files of a dump.
        gap: Where a difference starts, if that is not certain.
        unplaced: Files of the dump that belong to no tensor.
    """

    outputs: OutputCoverage
    tensors: Share | None = None
    samples: Share | None = None
    files: Share | None = None
    gap: CoverageGap | None = None
    unplaced: tuple[UnplacedFile, ...] = ()


DoubtKind = Literal[
    "nonfinite_inputs", "nonfinite_outputs", "nan", "constant", "single", "repeated", "time", "labels",
    "unrepeatable", "one_class", "flat", "lacking", "indices", "tokens", "file",
    "statistics", "unread", "guess", "blind",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Doubt:
    """Why what was measured is no ground for a good verdict.

    Attributes:
        kind: ``nonfinite_inputs``, ``nonfinite_outputs``: samples with NaN or infinite values in what the network
            is fed, or gives in float. ``nan``: samples for which some of what it gives in float is NaN.
            ``constant``: samples that are the same number all over. ``single``: one
            sample; ``repeated``: the same one many times. ``time``: it ran out. ``labels``: labels beyond the last
            class. ``unrepeatable``: the evaluator answers differently when asked twice. ``one_class``: the float
            network gives the same class for every sample. ``flat``: it gives the same numbers for every sample.
            ``lacking``: samples that were fed and are not in the dump. ``indices``: more class numbers or truth
            values of an output differ than is usual, of so few that it may be chance. ``tokens``: the nll of next
            tokens is worse, of so few sequences that it may be chance. ``file``: the quantized file computes
            something else than its quantizers say. ``statistics``: only statistics of tensors were compared.
            ``unread``: quantizers of a file that could not be read, and the file itself was not run. ``guess``:
            the float network gives hardly more labels than guessing does. ``blind``: the evaluator never ran a
            network.
        count: How many samples or labels.
        of: Of how many.
        name: The first of them, or the class.
    """

    kind: DoubtKind
    count: int = 0
    of: int = 0
    name: str = ""

    @property
    def text(self) -> Message:
        """The same in a sentence."""
        return message(f"coverage.doubt_{self.kind}", count=self.count, of=self.of, name=self.name or "-")


Grade = Literal["fine", "lossy", "incomplete", "no_evidence"]


@dataclass(frozen=True, slots=True)
class FlatOutput:
    """An output, or a part of one, that has lost what it varies by: only a few values are left, or more is error.

    Attributes:
        name: Its name.
        before: How many different values it has in float; 0 where its error is what is wrong.
        after: How many are left.
    """

    name: str
    before: int
    after: int


@dataclass(frozen=True, slots=True)
class Judgement:
    """The one judge's answer, from which every command takes its word.

    Attributes:
        grade: ``fine``: every output was judged, keeps the limits, and nothing speaks against the evidence.
            ``lossy``: an output misses them, or the user's metric is significantly worse. ``incomplete``: what was
            judged keeps them, and not every output was judged. ``no_evidence``: nothing was judged, or what was
            measured is no ground for a good verdict.
        coverage: What it rests on.
        doubts: Why a good grade was refused, or would have been.
        limits: What outputs must keep, in words.
        flat: Outputs and parts of them that have lost their values, whatever limits they keep.
    """

    grade: Grade
    coverage: Coverage
    doubts: tuple[Doubt, ...] = ()
    limits: str = ""
    flat: tuple[FlatOutput, ...] = field(default=(), metadata={"rare": True})

    @property
    def good(self) -> bool:
        """Whether a command may say that all is well."""
        return self.grade == "fine"


@dataclass(frozen=True, slots=True)
class MetricScores:
    """The user's metric of a network, sample by sample where it has such values.

    Attributes:
        name: What is measured.
        higher_is_better: Which way it is better.
        samples: Names of the samples; empty where there is one value for all.
        values: A value for each of them, or one.
    """

    name: str
    higher_is_better: bool
    samples: tuple[str, ...]
    values: tuple[float, ...]
