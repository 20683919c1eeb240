"""Opening a row of blocks in the fastest way that is shown, on samples of the user, to compute the same.

Fused kernels and several samples at a time are tried against the whole model run as the graph says, one sample at
a time, and given up where they differ by more than the last bits.
"""

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from roundoff.core.tensors import Array
from roundoff.errors import ModelFailed
from roundoff.graph.cutting import Cutting
from roundoff.graph.load import Model
from roundoff.graph.subgraph import tap
from roundoff.graph.wiring import subgraphs
from roundoff.measure.metrics import ratio_db
from roundoff.run.blocks.chain import BlockChain, rows_of, stack_feeds
from roundoff.run.session import open_session

__all__ = [
    "FUSED_AGREEMENT_DB",
    "OpenedChain",
    "Outputs",
    "agreement_db",
    "open_chain",
    "open_copy",
    "plain_outputs",
    "takes_batches",
]

FUSED_AGREEMENT_DB = 90.0
"""What fused kernels must agree to with plain ones; rounding alone leaves 105 to 140 dB in deep networks."""

# What they give for one sample depends on the others, or has no place for several.
_NOT_BY_SAMPLE = frozenset({"Compress", "NonMaxSuppression", "NonZero", "Unique"})

Outputs = Mapping[str, Array]


@dataclass(frozen=True, slots=True)
class OpenedChain:
    """Sessions of all blocks, and how they may be used.

    Attributes:
        chain: The sessions.
        together: Whether several samples may be run at a time.
        fused: Whether nodes are fused.
        agreement_db: How the outputs agree with those of the whole model, run as the graph says; +inf when equal.
        notes: What the user should know.
    """

    chain: BlockChain
    together: bool
    fused: bool
    agreement_db: float
    notes: tuple[str, ...] = ()


def plain_outputs(
    model: Model, wanted: Sequence[str], feeds: Sequence[Mapping[str, Array]], *, threads: int = 1
) -> list[Outputs]:
    """Tensors of a model in each sample, run whole, as the graph says, one sample at a time.

    Args:
        model: The model.
        wanted: The tensors.
        feeds: The samples.
        threads: Threads per node; some convolutions of onnxruntime add up in another order with more of them.

    Raises:
        ModelFailed: The model cannot be run.
    """
    session = open_session(model, outputs=tap(model, wanted), threads=threads)
    return [dict(zip(wanted, session.run(feed), strict=True)) for feed in feeds]


def open_chain(
    blocks: Sequence[Model],
    cutting: Cutting,
    feeds: Sequence[Mapping[str, Array]],
    expected: Callable[[], Sequence[Outputs]],
    *,
    fuse_above_db: float | None = FUSED_AGREEMENT_DB,
    threads: int = 1,
) -> OpenedChain:
    """Open the blocks of a model.

    Args:
        blocks: The model of each block.
        cutting: How it is cut.
        feeds: A few samples of equal shapes to try it on.
        expected: What `plain_outputs` gives for them; asked for when the blocks are open.
        fuse_above_db: The agreement that fused kernels need; None for plain ones only.
        threads: Threads per node.

    Raises:
        ModelFailed: The model cannot be run.
    """
    notes: list[str] = []
    if fuse_above_db is not None:
        try:
            fused = _Trial(blocks, cutting, feeds, fused=True, threads=threads)
        except ModelFailed as error:
            notes.append(f"fused kernels cannot run this model ({error.what}), so plain ones were used")
        else:
            reached = fused.agreement(expected())
            if reached >= fuse_above_db and fused.repeats():
                return OpenedChain(fused.chain, fused.takes_batches(least_db=fuse_above_db), True, reached)
            if reached < fuse_above_db:
                notes.append(
                    f"fused kernels agree with plain ones only to {reached:.0f} dB, so plain ones were used"
                )
    plain = _Trial(blocks, cutting, feeds, fused=False, threads=threads)
    reached = plain.agreement(expected())
    if not plain.repeats():
        notes.append("run twice on the same sample, this model gives two results; scores contain the difference")
    elif reached < math.inf:
        notes.append(f"run in blocks this model agrees with the whole only to {reached:.0f} dB")
    return OpenedChain(plain.chain, plain.takes_batches(least_db=math.inf), False, reached, tuple(notes))


def open_copy(blocks: Sequence[Model], cutting: Cutting, like: OpenedChain, *, threads: int = 1) -> OpenedChain:
    """Open blocks that compute the same as others which were tried."""
    return replace(like, chain=BlockChain(blocks, cutting, fused=like.fused, threads=threads))


def takes_batches(model: Model) -> bool:
    """Whether nothing in a model forbids to run several samples at a time."""
    nodes: Sequence[Any] = model.proto.graph.node
    return all(node.op_type not in _NOT_BY_SAMPLE and next(subgraphs(node), None) is None for node in nodes)


def agreement_db(reference: Array, candidate: Array) -> float:
    """Energy of a tensor over that of the difference, in decibels; -inf where shapes or infinities differ."""
    if reference.shape != candidate.shape:
        return -math.inf
    if np.array_equal(reference, candidate):
        return math.inf
    if reference.dtype.kind not in "fc":
        return -math.inf
    x, y = reference.astype(np.complex128).ravel(), candidate.astype(np.complex128).ravel()
    finite = np.isfinite(x)
    if not np.array_equal(finite, np.isfinite(y)) or not np.array_equal(
        reference.ravel()[~finite], candidate.ravel()[~finite], equal_nan=True
    ):
        return -math.inf
    x, y = x[finite], y[finite]
    signal, noise = (float((np.abs(part) ** 2).sum()) for part in (x, x - y))
    return ratio_db(signal, noise)


class _Trial:
    """One way to run the blocks, tried on some samples."""

    def __init__(
        self,
        blocks: Sequence[Model],
        cutting: Cutting,
        feeds: Sequence[Mapping[str, Array]],
        *,
        fused: bool,
        threads: int,
    ) -> None:
        self.chain = BlockChain(blocks, cutting, fused=fused, threads=threads)
        self._feeds = feeds
        self._single = [self.chain.run(feed) for feed in feeds]

    def agreement(self, expected: Sequence[Outputs]) -> float:
        return _worst(
            agreement_db(right[name], left[name])
            for left, right in zip(self._single, expected, strict=True)
            for name in right
        )

    def repeats(self) -> bool:
        """Whether the first sample gives the same once more."""
        again = self.chain.run(self._feeds[0])
        return all(agreement_db(values, again[name]) == math.inf for name, values in self._single[0].items())

    def takes_batches(self, *, least_db: float) -> bool:
        """Whether all samples at once give what each gives alone."""
        count = len(self._feeds)
        if count < 2 or any(array.ndim == 0 for array in self._feeds[0].values()):
            return False
        try:
            joined = self.chain.run(stack_feeds(self._feeds))
        except ModelFailed:
            return False
        for name, values in joined.items():
            alone = [outputs[name] for outputs in self._single]
            if values.ndim == 0 or values.shape != (count * alone[0].shape[0], *alone[0].shape[1:]):
                return False
            rows = rows_of(values, count)
            if _worst(agreement_db(one.reshape(-1), row) for one, row in zip(alone, rows, strict=True)) < least_db:
                return False
        return True


def _worst(values: Iterable[float]) -> float:
    return min(values, default=math.inf)
