"""A dump seen through the model it came from."""

import numpy as np
import pytest

from roundoff.align.alignment import rename_after
from roundoff.core.tensors import TensorInfo
from roundoff.errors import CannotAlign
from tests.sources import MemorySource

MODEL = [
    TensorInfo("/net/conv/Conv_output_0", "float32", (2,), node="/net/conv/Conv", op_type="Conv"),
    TensorInfo("/net/act/Relu_output_0", "float32", (2,), node="/net/act/Relu", op_type="Relu"),
    TensorInfo("logits", "float32", (2,), node="head", op_type="Gemm"),
]


def test_file_names_become_the_models_names_in_its_order() -> None:
    arrays = {
        "_net_act_Relu_output_0": np.array([1.0, 2]),
        "debug": np.array([9.0, 9]),
        "_net_conv_Conv_output_0": np.array([3.0, 4]),
    }
    seen = rename_after(MemorySource(arrays, ordered=False), MODEL)
    assert seen.ordered
    assert [info.name for info in seen.tensors] == ["/net/conv/Conv_output_0", "/net/act/Relu_output_0", "debug"]
    assert [info.op_type for info in seen.tensors] == ["Conv", "Relu", ""]
    assert list(seen.read("/net/conv/Conv_output_0", "")) == [3, 4]
    assert list(seen.read("debug", "")) == [9, 9]


def test_another_models_dump_is_refused() -> None:
    with pytest.raises(CannotAlign, match="None of the 1 tensors of memory has the name of a tensor of the model"):
        rename_after(MemorySource({"x9": np.zeros(2)}), MODEL)
