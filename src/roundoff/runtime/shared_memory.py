"""One pool of working memory for many sessions.

A session keeps what its runs took. Dozens of them, each opened for a few runs, would each ask the system for
memory of their own, and getting it takes a good part of a short run.
"""

from threading import Lock
from typing import Any

__all__ = ["SHARED_ENTRY", "join_shared_memory", "release_shared_memory"]

SHARED_ENTRY = ("session.use_env_allocators", "1")
"""The entry of a session's configuration by which it uses the pool; sessions without it are not concerned."""

_LOCK = Lock()
_MADE = False


def join_shared_memory(options: Any) -> None:
    """Let a session that is opened with these `onnxruntime.SessionOptions` use the pool."""
    global _MADE  # noqa: PLW0603 - onnxruntime has one for the whole process, too
    import onnxruntime as ort

    with _LOCK:
        if not _MADE:
            place = ort.OrtMemoryInfo("Cpu", ort.OrtAllocatorType.ORT_ARENA_ALLOCATOR, 0, ort.OrtMemType.DEFAULT)
            ort.create_and_register_allocator(place, None)
            _MADE = True
    options.add_session_config_entry(*SHARED_ENTRY)


def release_shared_memory() -> None:
    """Give back to the system what no session and no array uses."""
    if not _MADE:
        return
    import onnxruntime as ort
    from onnx import TensorProto, helper

    from roundoff.graph.build import make_model

    # Only a run can do it.
    value = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    node = helper.make_node("Constant", [], ["x"], value_floats=[0.0])
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.add_session_config_entry(*SHARED_ENTRY)
    proto = make_model(helper.make_graph([node], "release", [], [value]))
    session = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    how = ort.RunOptions()
    how.add_run_config_entry("memory.enable_memory_arena_shrinkage", "cpu:0")
    session.run(None, {}, how)
