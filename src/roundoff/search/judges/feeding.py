"""Calibration samples from an evaluator: what its ``calibration(model)`` feeds the model is kept."""

import functools
import hashlib
import tempfile
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from roundoff.analysis.user_code import call_user_code
from roundoff.core.tensors import Array
from roundoff.errors import BadInput
from roundoff.graph.load import Model
from roundoff.graph.saving import save_model
from roundoff.runtime.blocks.store import TensorStore
from roundoff.runtime.memory import available_memory
from roundoff.runtime.session_watch import listen, unlisten

__all__ = ["FedSamples", "fed_samples"]

_KEY = "roundoff.feeding"


class FedSamples:
    """What a model was fed, run by run.

    Attributes:
        label: Who fed it.
        names: A name for each run.

    Args:
        label: Who feeds it.
        max_memory: Bytes to keep in memory; the rest goes to files.
        most: Runs that are kept; None for all.
    """

    label: str
    names: tuple[str, ...]

    def __init__(self, label: str, *, max_memory: int | None = None, most: int | None = None) -> None:
        self.label, self.names = label, ()
        self._most = most
        self._inputs: list[tuple[str, ...]] = []
        self._store = TensorStore((max_memory or available_memory()) // 4)
        self._hash = hashlib.sha256()

    def feed(self, index: int) -> Mapping[str, Array]:
        """What the model was fed in one run."""
        return {name: self._store.get(index, name) for name in self._inputs[index]}

    @property
    def digest(self) -> str:
        """A hash of all that it was fed."""
        return self._hash.hexdigest()

    def add(self, feed: Mapping[str, Any]) -> None:
        """Keep one more run, as it is now: whoever feeds it may use the arrays again."""
        index = len(self.names)
        if self._most is not None and index >= self._most:
            return
        for name in sorted(feed):
            value = feed[name]
            array = np.array(value.numpy() if hasattr(value, "numpy") else value, order="C")
            self._hash.update(f"{name} {array.dtype.str} {array.shape} ".encode())
            self._hash.update(array.tobytes())
            self._store.put(index, name, array)
        self._inputs.append(tuple(sorted(feed)))
        self.names = (*self.names, f"run {index + 1}")


def fed_samples(
    calibration: Callable[[str], Any],
    model: Model,
    *,
    path: Path,
    most: int | None = None,
    max_memory: int | None = None,
) -> FedSamples:
    """Let an evaluator run a model on its calibration data, and keep these.

    Args:
        calibration: Is called with the path of the model, opens it in onnxruntime and runs it.
        model: The float model.
        path: The file of the evaluator.
        most: Runs that are kept; None for all.
        max_memory: Bytes the process may take; most of the free memory by default.

    Raises:
        BadInput: It failed, or did not run the model.
    """
    found = FedSamples(f"calibration() in {path}", max_memory=max_memory, most=most)
    mark = uuid.uuid4().hex

    def opened(session: Any, _source: Any) -> None:
        if session.get_modelmeta().custom_metadata_map.get(_KEY) == mark:
            session.run = _watched(session.run, found)

    with tempfile.TemporaryDirectory(prefix="roundoff-") as folder:
        file = Path(folder) / "model.onnx"
        save_model(_marked(model, mark), file)
        listen(mark, opened)
        try:
            call_user_code(calibration, str(file), path=path, what="The evaluator")
        finally:
            unlisten(mark)
    if not found.names:
        what = f"calibration() in {path} did not run the model that it was given."
        fix = "let it call run() of an onnxruntime.InferenceSession(model), in this process; or give --data"
        raise BadInput(what, fix=fix)
    return found


def _watched(original: Callable[..., list[Any]], found: FedSamples) -> Callable[..., list[Any]]:
    @functools.wraps(original)
    def run(
        output_names: Sequence[str] | None, input_feed: Mapping[str, Any], run_options: Any = None
    ) -> list[Any]:
        values = original(output_names, input_feed, run_options)
        found.add(input_feed)
        return values

    return run


def _marked(model: Model, mark: str) -> Model:
    proto = type(model.proto)()
    proto.CopyFrom(model.proto)
    proto.metadata_props.add(key=_KEY, value=mark)
    return Model(proto, model.path, model.file_bytes)
