"""onnxruntime sessions that compute exactly what the graph says, and fail in words a user can act on."""

import contextlib
import ctypes
import functools
import os
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from threading import Lock
from typing import Any, Literal, TypeVar

from roundoff.core.names import shown
from roundoff.core.tensors import Array
from roundoff.errors import ModelFailed
from roundoff.graph.load import MAPPED_BYTES, Model, float_bytes
from roundoff.graph.subgraph import TappedModel, tap
from roundoff.graph.weights import mapped_constants
from roundoff.messages.message import english

# One pool of working memory for many sessions.
#
# A session keeps what its runs took. Dozens of them, each opened for a few runs, would each ask the system for
# memory of their own, and getting it takes a good part of a short run.

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

    from roundoff.graph.nodes import make_model

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


# Long work in C++ that Ctrl-C can end: Python looks at signals only between its own instructions.

_T = TypeVar("_T")
_LOOK_UP_S = 0.1
# One is enough, since only the main thread hands work to it; starting one for every run would cost more than it.
_THREAD = ThreadPoolExecutor(1, thread_name_prefix="run")


def interruptible(work: Callable[[], _T], *, stop: Callable[[], None]) -> _T:
    """Do the work in a thread of its own while the main thread waits for it and for signals.

    Args:
        work: What to do. On any thread but the main one, which gets all signals, it is simply done.
        stop: Makes the work end early; called when the wait is interrupted.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()
    future = _THREAD.submit(work)
    try:
        while not wait([future], timeout=_LOOK_UP_S).done:
            pass
    except BaseException:
        stop()
        wait([future])
        raise
    return future.result()


HEAVY_BYTES = MAPPED_BYTES
"""Models whose weights take so much are run with care for memory first."""
# Beyond this a graph is not rewritten: what is rewritten holds weights anew, those of codes as floats.
_MOST_REWRITTEN_BYTES = 1 << 28

_ONLY_FATAL = 4
_STATUS = re.compile(r"^\[ONNXRuntimeError\] : \d+ : \w+ : ")
_SOURCE = re.compile(r"\S+\.(?:cc|h|cpp|hpp):\d+ ")
_ASSERTION = re.compile(r"^.{0,200}? was false\.\s*")
_SPECIALIZATION = re.compile(r"^(?: const)?(?: \[with [^\]]*\])?\s*")

# What onnxruntime says, and what helps then; the first that matches counts.
_REMEDIES = (
    (
        r"max supported IR version: (\d+)",
        "set model.ir_version to {0} or lower and save the model again, or pip install -U onnxruntime",
    ),
    (
        r"domain ai\.onnx is till opset (\d+)",
        "convert the model with onnx.version_converter.convert_version(model, {0}), or pip install -U onnxruntime",
    ),
    (
        r"No Op registered for|No opset import for domain|is not a registered function/op",
        "export the model with standard operators, or cut it before that node; custom operators cannot be run",
    ),
    (
        r"Could not find an implementation for",
        "convert the model to float32 and standard operators; this one has no CPU version for these types",
    ),
    (
        r"bad_alloc|allocate memory|bad allocation",
        "lower --max-memory so that tensors are captured in more passes, or use a smaller batch",
    ),
)
_DEFAULT_REMEDY = english(
    "check the model with onnx.checker.check_model(path, full_check=True), and that the data fits it"
)


class Session:
    """A model ready to run. Made by `open_session`."""

    def __init__(self, raw: Any, *, model: Model, outputs: tuple[str, ...], held: Sequence[Any] = ()) -> None:
        self._raw = raw
        self._held = held  # values that onnxruntime uses where they are
        self._model = model
        self._outputs = outputs
        self._running: list[Any] = []

    @property
    def types(self) -> tuple[str, ...]:
        """Onnxruntime's name for the type of each output, e.g. ``tensor(float)`` or ``seq(tensor(int64))``."""
        by_name = {output.name: output.type for output in self._raw.get_outputs()}
        return tuple(by_name[name] for name in self._outputs)

    @property
    def shapes(self) -> tuple[tuple[int | None, ...], ...]:
        """Shape of each output, as far as it is known before a run; None for sizes that are not."""
        by_name = {output.name: output.shape for output in self._raw.get_outputs()}
        return tuple(
            tuple(size if isinstance(size, int) else None for size in by_name[name]) for name in self._outputs
        )

    def run(self, feed: Mapping[str, Array], *, sample: str = "") -> list[Array]:
        """Values of all outputs, in the order asked for when the session was opened.

        Args:
            feed: A value for each input.
            sample: What the user calls this feed; for messages.

        Raises:
            ModelFailed: onnxruntime could not compute them.
        """
        if not self._outputs:
            return []
        import onnxruntime as ort

        options = ort.RunOptions()
        self._running.append(options)
        try:
            return interruptible(
                lambda: list(self._raw.run(list(self._outputs), dict(feed), options)), stop=self.stop
            )
        except Exception as error:
            where = english(" on sample {sample!r}", sample=sample) if sample else ""
            raise _failure(english("{path} failed{where}", path=self._model.path, where=where), error) from error
        finally:
            self._running.remove(options)

    def stop(self) -> None:
        """End the runs that are under way, in whatever threads, before their next nodes; they then fail."""
        for options in list(self._running):
            options.terminate = True


def open_session(
    model: Model,
    *,
    outputs: TappedModel | None = None,
    threads: int | None = None,
    optimize: bool = False,
    fused: bool = False,
    keep_memory: bool | Literal["shared"] = True,
) -> Session:
    """Prepare a model for running on the CPU.

    Args:
        model: The model.
        outputs: What to compute, from `roundoff.graph.subgraph`; the model's own outputs by default.
        threads: Threads per node; all cores by default. Results do not depend on it.
        optimize: Let onnxruntime rewrite the graph where that leaves results bit-equal; not that of a large model.
        fused: Let onnxruntime also fuse nodes and change layouts: often three times as fast, and different in the
            last bits; not those of a large model. Quantizers are computed as they are all the same, not fused into
            integer kernels.
        keep_memory: Keep what a run took for the next one; faster, but then a single array of an earlier run that
            is still in use holds on to all of it. Sessions with ``shared`` take it from one another.

    Raises:
        ModelFailed: onnxruntime does not accept the model.
    """
    import onnxruntime as ort

    taps = tap(model, [value.name for value in model.proto.graph.output]) if outputs is None else outputs
    heavy = model.weight_bytes >= HEAVY_BYTES
    if heavy:
        give_back_memory()
        plain = float_bytes(model) > _MOST_REWRITTEN_BYTES
        optimize, fused = optimize and not plain, fused and not plain
    levels = ort.GraphOptimizationLevel
    options = ort.SessionOptions()
    options.graph_optimization_level = levels.ORT_ENABLE_BASIC if optimize else levels.ORT_DISABLE_ALL
    if fused:
        options.graph_optimization_level = levels.ORT_ENABLE_ALL
    # Otherwise, even at the basic level, onnxruntime would quantize float weights by itself where the activations
    # around them are quantized.
    options.add_session_config_entry("session.disable_quant_qdq", "1")
    options.intra_op_num_threads = threads or available_threads()
    # What an arena once took it keeps, and it takes twice as much each time: weights are decoded into it, too.
    options.enable_cpu_mem_arena = bool(keep_memory) and not heavy
    if keep_memory == "shared":
        join_shared_memory(options)
    options.log_severity_level = _ONLY_FATAL  # everything that matters comes back as an exception
    # Threads that spin while they wait take the cores from the statistics computed next to the run.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    # A folder that has no name in UTF-8 cannot be told; only weights outside of the model need it.
    if shown(model.folder) == str(model.folder):
        options.add_session_config_entry("session.model_external_initializers_file_folder_path", str(model.folder))
    if heavy:
        # Weights are neither copied into the order that kernels like best, nor are those of later nodes decoded
        # before their turn: each would take as much as all weights once more.
        options.add_session_config_entry("session.disable_prepacking", "1")
        options.execution_order = ort.ExecutionOrder.PRIORITY_BASED
    constants = dict(taps.constants)
    values = []
    if heavy and not optimize and not fused:
        # Used where they are, by all sessions; whoever rewrites the graph would want to have them in it.
        for name, array in {**mapped_constants(model), **_declared_there(model)}.items():
            constants.pop(name, None)
            values.append(ort.OrtValue.ortvalue_from_numpy(array))
            options.add_initializer(name, values[-1])
    if constants:
        copied = [ort.OrtValue.ortvalue_from_numpy(array) for array in constants.values()]
        options.add_external_initializers(list(constants), copied)
    try:
        # A fallback would be announced on stdout, among the results.
        raw = ort.InferenceSession(taps.data, options, providers=["CPUExecutionProvider"], enable_fallback=0)
    except Exception as error:
        raise _failure(
            english("onnxruntime {version} cannot open {path}", version=ort.__version__, path=model.path), error
        ) from error
    return Session(raw, model=model, outputs=taps.outputs, held=values)


def _declared_there(model: Model) -> dict[str, Array]:
    """Values beside a model that it declares to be in its own file; see `declared_outside`."""
    own = {
        tensor.name
        for tensor in model.proto.graph.initializer
        if tensor.name in model.beside and tensor.external_data[0].value == model.path.name
    }
    return {name: values for name, values in model.beside.items() if name in own}


def give_back_memory() -> None:
    """Return to the system what is free, which the C library keeps: opening a model takes a multiple of it."""
    with contextlib.suppress(OSError, TypeError, AttributeError):  # not every C library has it
        ctypes.CDLL(None).malloc_trim(0)


def available_threads() -> int:
    """Cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def share_threads(total: int | None = None) -> tuple[int, int]:
    """Threads for running a model, and for heavy work on its tensors at the same time.

    Kept apart, neither waits for the other: a node that shares its cores finishes with its slowest thread.

    Args:
        total: Threads for both together; all cores by default.
    """
    cores = total or available_threads()
    return max(1, cores - cores // 2), max(1, cores // 2)


def _failure(what: str, error: Exception) -> ModelFailed:
    message = str(error)
    fix = _DEFAULT_REMEDY
    for pattern, remedy in _REMEDIES:
        found = re.search(pattern, message)
        if found:
            fix = remedy.format(*found.groups())
            break
    return ModelFailed(english("{what}: {reason}", what=what, reason=_reason(message)), fix=fix)


def _reason(message: str) -> str:
    """The first line of an onnxruntime message, without status code, source file and C++ signature."""
    text = _STATUS.sub("", message.strip())
    line = next((line.strip() for line in text.splitlines() if line.strip()), "no reason given")
    source = _SOURCE.search(line)
    if source is None:
        return line
    before, rest = line[: source.start()], _after_signature(line[source.end() :])
    return before + _ASSERTION.sub("", rest)


def _after_signature(text: str) -> str:
    """What follows a C++ function's signature: its parentheses nest, so they are counted."""
    depth = 0
    for position, character in enumerate(text):
        depth += (character == "(") - (character == ")")
        if character == ")" and depth == 0:
            return _SPECIALIZATION.sub("", text[position + 1 :])
    return text


Listener = Callable[[Any, Any], None]
"""Is given a session that was just opened, and what it was opened from: a path, or bytes."""

_MARK = "_roundoff_watches"
_LISTENERS: dict[str, Listener] = {}


def add_session_observer(name: str, listener: Listener) -> None:
    """Tell somebody of all sessions that are opened from now on.

    Args:
        name: Who it is; an earlier listener of this name is replaced.
        listener: Is called in the thread that opened the session.
    """
    from onnxruntime import InferenceSession

    _LISTENERS[name] = listener
    original = InferenceSession.__init__
    if hasattr(original, _MARK):
        return

    @functools.wraps(original)
    def opening(session: Any, *args: Any, **named: Any) -> None:
        original(session, *args, **named)
        source = args[0] if args else named.get("path_or_bytes")
        for each in tuple(_LISTENERS.values()):
            each(session, source)

    setattr(opening, _MARK, original)
    InferenceSession.__init__ = opening


def remove_session_observer(name: str) -> None:
    """Tell somebody no more; without anybody left, sessions are opened as ever."""
    from onnxruntime import InferenceSession

    _LISTENERS.pop(name, None)
    original = getattr(InferenceSession.__init__, _MARK, None)
    if original is not None and not _LISTENERS:
        InferenceSession.__init__ = original
