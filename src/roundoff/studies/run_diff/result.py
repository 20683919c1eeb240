"""What differs between two runs of one command, node by node, as data."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from roundoff.core.coverage import Coverage
from roundoff.messages.message import NOTHING, Message

CEILING_DB = 80.0
"""Above this an error is that of float arithmetic, which other machines and versions make otherwise."""

RunKind = Literal["comparison", "layers", "sensitivity", "accumulation", "diagnosis"]
DiffKind = Literal["same", "better", "worse", "mixed", "unclear", "untested"]
"""unclear: there are differences, but chance is not excluded; untested: there are, but nothing can be tested."""

Change = Literal["same", "better", "worse", "unclear", "untested"]
Pairing = Literal["paired", "unpaired", "none"]
"""paired: both runs scored the same samples; unpaired: other ones; none: they keep no scores of single samples."""


@dataclass(frozen=True, slots=True)
class RunInputChange:
    """Something that is not the same in both runs.

    Attributes:
        what: What: an input by its role, the command line, a package, the host.
        before: In the first run; empty when it is not there.
        after: In the second run.
        environment: Whether it is where it ran rather than what was run.
    """

    what: str
    before: str
    after: str
    environment: bool = False


@dataclass(frozen=True, slots=True)
class RowDiff:
    """One score of one tensor, or of one subject of a ranking, in both runs.

    Attributes:
        order: Position in execution order in the second run; None when unknown.
        node: The node, in the second run.
        op_type: Its operation.
        tensor: What is scored, in the second run; for a ranking the name of the subject.
        renamed_from: What it is called in the first run; empty when the same.
        measure: Which score: ``local``, ``accumulated``, ``compared``, ``diagnosed`` or a kind of ranking.
        output: Whether it is an output of the network.
        before: In decibels, mean over the samples; None without a score.
        after: The same in the second run.
        change_db: By how much it is better, negative when it is worse; None without both scores.
        samples: How many samples, or pairs of them, the change was tested on; 0 when it was not.
        probability: Of a change at least this large by chance, corrected for the number of rows; None when that
            could not be tested, and for rows that are the same bit for bit.
        loss_probability: The same of a loss alone, which is all that a gate asks for.
        change: What that means.
        starts: Whether a worse row is worse by itself; otherwise something it is computed from is worse already.
        detail: What else there is to say, such as a tensor that lost its score.
        pooled: Of an output, in both runs: all samples as one tensor; None without a score, and elsewhere.
    """

    order: int | None
    node: str
    op_type: str
    tensor: str
    renamed_from: str
    measure: str
    output: bool
    before: float | None
    after: float | None
    change_db: float | None
    samples: int
    probability: float | None
    loss_probability: float | None
    change: Change
    starts: bool = False
    detail: str = ""
    pooled: tuple[float, float] | None = field(default=None, metadata={"rare": True})


@dataclass(frozen=True, slots=True)
class GateRow:
    """One row as a gate judges it.

    Attributes:
        tensor: As in the diff.
        measure: As in the diff.
        budget: The pattern that decides; empty when it is the general limit.
        allowed_db: The loss that is allowed; None when none is judged.
        at_least_db: What it must reach; None when nothing was asked.
        passed: Whether it is within its budget; None when it is not judged.
        why: What is wrong, or why it is not judged; where it passes, why it does although it lost more than it
            may, empty otherwise.
    """

    tensor: str
    measure: str
    budget: str
    allowed_db: float | None
    at_least_db: float | None
    passed: bool | None
    why: Message = NOTHING


@dataclass(frozen=True, slots=True)
class GateMetric:
    """The user's metric as a gate judges it.

    Attributes:
        name: What is measured.
        before: Of the baseline, mean over its samples.
        after: Of the run; None when it does not have it.
        loss: How much worse it is, over the samples that both have; negative when it is better.
        low: Lower end of the interval of 95 % of the loss; None where there are no scores of samples.
        high: Its upper end.
        chance: How probable so large a change is where there is none; None where that cannot be told.
        samples: On how many samples it was tested.
        paired: Whether the same samples were compared.
        allowed: The loss that is allowed.
        passed: Whether it is within its budget.
        unclear: Whether there are too few samples to tell; it has not passed then, and not failed either.
        lacking: Samples of the baseline that the run does not have.
    """

    name: str
    before: float
    after: float | None
    loss: float | None = None
    low: float | None = None
    high: float | None = None
    chance: float | None = None
    samples: int = 0
    paired: bool = False
    allowed: float = 0.0
    passed: bool = True
    unclear: bool = False
    lacking: int = 0


@dataclass(frozen=True, slots=True)
class Gate:
    """Whether a run may pass.

    Attributes:
        max_regression_db: The loss that is allowed where no budget says otherwise.
        rows: One for each row of the diff, in its order.
        problems: What else keeps the run from passing: outputs that are missing, new findings of a diagnosis.
        unused: Patterns of the budget that match nothing.
        metrics: The user's metrics.
        doubts: Why scores within budget prove nothing: the run's own evidence, or samples of the baseline that
            the run has not.
        coverage: What of the run was judged; None in documents of older versions.
        lossy: Whether its outputs miss what they must keep, as those of the baseline did, or as a budget allows.
    """

    max_regression_db: float
    rows: tuple[GateRow, ...]
    problems: tuple[Message, ...] = ()
    unused: tuple[str, ...] = ()
    metrics: tuple[GateMetric, ...] = ()
    doubts: tuple[Message, ...] = ()
    coverage: Coverage | None = None
    lossy: bool = field(default=False, metadata={"rare": True})

    @property
    def failed(self) -> int:
        """How many things are wrong with the run."""
        metrics = sum(not each.passed and not each.unclear for each in self.metrics)
        return sum(row.passed is False for row in self.rows) + len(self.problems) + metrics

    @property
    def passed(self) -> bool:
        """Whether the run may pass."""
        return not self.failed and not self.doubts and not any(each.unclear for each in self.metrics)


@dataclass(frozen=True, slots=True)
class RunDiff:
    """Everything that differs between two runs.

    Attributes:
        before: Path of the first run, as given.
        after: Path of the second run.
        compared: What kind of runs they are.
        kind: The verdict.
        rows: What both have, in execution order where it is known.
        first: First tensor in execution order that is worse; None when none is, or the order is unknown.
        only_before: What only the first run has a score of.
        only_after: What only the second has.
        renamed: Names in the first and in the second run of what was taken for the same by operation, shape and
            place.
        inputs: What was not the same.
        pairing: How samples of both runs belong together.
        samples: Samples scored in the first and in the second run.
        floor_db: Changes smaller than this are none.
        level: Probability up to which chance is excluded, over all rows together.
        notes: What the reader should know.
        gate: What a gate says to it; None when none was asked.
        common: Samples that both runs scored; None where they do not name them.
    """

    before: str
    after: str
    compared: RunKind
    kind: DiffKind
    rows: tuple[RowDiff, ...]
    first: str | None
    only_before: tuple[str, ...]
    only_after: tuple[str, ...]
    renamed: tuple[tuple[str, str], ...]
    inputs: tuple[RunInputChange, ...]
    pairing: Pairing
    samples: tuple[int, int]
    floor_db: float
    level: float
    notes: tuple[Message, ...] = ()
    gate: Gate | None = None
    common: int | None = None

    @property
    def largest(self) -> RowDiff | None:
        """Of what is worse by itself, that which lost most; local scores tell it where there are any."""
        starts = [row for row in self.changed("worse") if row.starts]
        local = [row for row in starts if row.measure == "local"]
        return min(local or starts, key=_loss, default=None)

    @property
    def outputs(self) -> tuple[RowDiff, ...]:
        """What outputs of the network hand on in both runs."""
        return tuple(row for row in self.rows if row.output and row.measure != "local")

    @property
    def better_outputs(self) -> bool:
        """Whether every output got better, in its samples and over all of them."""
        return bool(self.outputs) and all(
            row.change == "better" and (row.pooled is None or row.pooled[1] > row.pooled[0])
            for row in self.outputs
        )

    def changed(self, *kinds: Change) -> tuple[RowDiff, ...]:
        """The rows with one of these changes."""
        return tuple(row for row in self.rows if row.change in kinds)

    def tensors(self, *kinds: Change) -> tuple[str, ...]:
        """The tensors of these rows, each once."""
        return names_of(self.changed(*kinds))


def _loss(row: RowDiff) -> float:
    return -math.inf if row.change_db is None else row.change_db


def names_of(rows: Sequence[RowDiff]) -> tuple[str, ...]:
    """The tensors of rows, each once, in their order."""
    return tuple(dict.fromkeys(row.tensor for row in rows))
