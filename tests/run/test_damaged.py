"""Whatever is wrong with a model file, the user gets a message."""

import contextlib
import tempfile
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st

from roundoff.errors import RoundoffError
from roundoff.graph.load import load_model
from roundoff.graph.shapes import tensor_infos
from roundoff.measure.statistics import summarize_tensors
from roundoff.run.capture import LiveSource
from tests.models import conv_net, random_feed
from tests.run.samples import MemorySamples

MODEL = conv_net().SerializeToString()
CHANGES = st.lists(st.tuples(st.integers(0, len(MODEL) - 1), st.integers(0, 255)), min_size=1, max_size=3)


# The same damage every time: what onnxruntime makes of arbitrary bytes is not ours to explore.
@settings(derandomize=True, deadline=None, max_examples=80)
@given(CHANGES, st.integers(0, 5))
def test_changed_bytes_lead_to_an_error_of_ours_or_to_a_run(changes: list[tuple[int, int]], cut: int) -> None:
    content = bytearray(MODEL)
    for position, byte in changes:
        content[position] = byte
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.onnx"
        path.write_bytes(content[: len(content) - cut])
        with contextlib.suppress(RoundoffError):
            model = load_model(path)
            tensor_infos(model)
            summarize_tensors(LiveSource(model, MemorySamples([random_feed({"image": (1, 3, 8, 8)})])))
