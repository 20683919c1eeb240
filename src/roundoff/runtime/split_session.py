"""Running a model whose last inputs come late, and again and again: the rest is computed once."""

from collections.abc import Collection, Mapping

from roundoff.core.tensors import Array
from roundoff.errors import ModelFailed
from roundoff.graph.load import Model
from roundoff.graph.splitting import SplitModel
from roundoff.graph.tap import detached
from roundoff.runtime.session import Session, open_session

__all__ = ["SplitSession"]


class SplitSession:
    """The sessions of a model in two parts, each run on one thread.

    Args:
        model: The model.
        late: The inputs that come late.
        fused: Let onnxruntime fuse nodes; see `open_session`.

    Raises:
        ModelFailed: onnxruntime does not accept a part.
    """

    def __init__(self, model: Model, late: Collection[str], *, fused: bool = True) -> None:
        self._split = SplitModel(model, late)
        early = self._split.early()
        self._given = tuple(value.name for value in early.proto.graph.output)
        self._early = _open(early, fused=fused)
        kinds = zip(self._early.types, self._early.shapes, strict=True)
        described = dict(zip(self._given, kinds, strict=True))
        self._late = _open(self._split.late(described), fused=fused) if self._split.late_outputs else None

    def begin(self, feed: Mapping[str, Array], *, sample: str = "") -> dict[str, Array]:
        """Everything that does not depend on late inputs, and what is needed to go on.

        Raises:
            ModelFailed: onnxruntime could not compute it.
        """
        found = self._early.run(feed, sample=sample)
        return {**feed, **dict(zip(self._given, found, strict=True))}

    def go_on(
        self, there: Mapping[str, Array], late: Mapping[str, Array], *, sample: str = ""
    ) -> dict[str, Array]:
        """The outputs that depend on late inputs.

        Args:
            there: From `begin`.
            late: The late inputs.
            sample: What the user calls the feed; for messages.

        Raises:
            ModelFailed: onnxruntime could not compute them.
        """
        if self._late is None:
            return {}
        feed = {**late, **{name: there[name] for name in self._split.passed}}
        return dict(zip(self._split.late_outputs, self._late.run(feed, sample=sample), strict=True))

    def stop(self) -> None:
        """End the runs that are under way; they then fail."""
        for session in (self._early, self._late):
            if session is not None:
                session.stop()


def _open(model: Model, *, fused: bool) -> Session:
    if not model.proto.graph.node:
        raise ModelFailed(f"{model.path} computes nothing.", fix="name other tensors with --output-node")
    return open_session(model, outputs=detached(model), fused=fused, threads=1, keep_memory="shared")
