from pathlib import Path

import numpy as np
import onnx

from roundoff.graph.backward.builder import backward_graph
from roundoff.graph.backward.tape import Tape
from roundoff.graph.load import load_model
from roundoff.runtime.session import open_session
from tests.contracts.backward_rule import in_memory
from tests.models import conv_net, random_feed


def test_the_same_operation_is_added_once() -> None:
    tape = Tape(in_memory(conv_net()))
    first = tape.op("Transpose", "image", perm=[0, 2, 1, 3])
    assert tape.op("Transpose", "image", perm=(0, 2, 1, 3)) == first
    assert tape.op("Transpose", "image", perm=[0, 1, 3, 2]) != first
    one = tape.constant(np.float32(1) * np.ones(()))
    assert tape.constant(np.ones(())) == one
    assert len({one, tape.constant(np.ones((), np.float32)), tape.constant(np.ones(1))}) == 3


def test_what_no_output_needs_is_left_out() -> None:
    tape = Tape(in_memory(conv_net()))
    wanted = tape.op("Add", "conv1", tape.constant(np.float32(1) * np.ones(1, np.float32)))
    tape.op("Mul", wanted, tape.constant(np.full(1, 2, np.float32)))
    model, names = tape.finish({wanted: "more"})
    assert names == {wanted: "more"}
    assert [node.op_type for node in model.proto.graph.node][-2:] == ["Gemm", "Add"]
    assert len(model.proto.graph.initializer) == len(conv_net().graph.initializer) + 1
    assert [output.name for output in model.proto.graph.output] == ["logits", "more"]


def test_weights_outside_of_the_file_stay_there(tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    onnx.save(conv_net(), path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    backward = backward_graph(load_model(path), ["image", "w1"])
    outside = [tensor for tensor in backward.model.proto.graph.initializer if tensor.data_location]
    assert len(outside) == 4
    feed = {**random_feed({"image": (1, 3, 8, 8)}), backward.seeds["logits"]: np.ones((1, 10), np.float32)}
    plain = backward_graph(in_memory(conv_net()), ["image", "w1"])
    results = []
    for graph in (backward, plain):
        names = [value.name for value in graph.model.proto.graph.output]
        values = dict(zip(names, open_session(graph.model).run(feed), strict=True))
        results.append([values[name] for name in graph.gradients.values()])
    assert all(np.array_equal(one, other) for one, other in zip(*results, strict=True))
