"""Recurrent layers: what the input adds is one product over all steps; what the state adds runs in a Scan."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from roundoff.core.tensors import Array
from roundoff.graph.caffe.conversion import LayerJob, converts
from roundoff.messages.message import english

_FLOAT = 1


@converts("LSTM")
def lstm(job: LayerJob) -> None:
    """A cell with input, forget and output gates; where the second bottom is 0 a new sequence begins."""
    hidden = job.params("recurrent_param").integer("num_output")
    gates, blobs = _from_input(job, 4 * hidden, states=2)
    steps, samples = job.bottoms[1].shape
    body = _lstm_body(hidden, job.blob(blobs, (4 * hidden, hidden)))
    _run(job, body, gates, job.bottoms[1].name, (steps, samples, hidden))


def _lstm_body(hidden: int, recurrent: Array) -> "_Body":
    body = _Body(("h", "c"), (("x", 4 * hidden), ("cont", 1)), hidden)
    body.add("Mul", ["h", "cont"], "kept")
    body.add("MatMul", ["kept", body.constant(recurrent.T, "weight")], "from_state")
    body.add("Add", ["x", "from_state"], "gates")
    body.add("Split", ["gates", body.constant(np.full(4, hidden, np.int64), "sizes")], "i f o g", axis=-1)
    for gate in "ifo":
        body.add("Sigmoid", [gate], f"{gate}_gate")
    body.add("Tanh", ["g"], "g_gate")
    _cell(body.add)
    return body


@converts("Lstm")
def lstm_of_forks(job: LayerJob) -> None:
    """The cell of CTPN, which takes steps x samples x values; or of caffe-lstm, which has both on one axis."""
    job.check_counts((1, 2))
    params, shape = job.params("lstm_param"), job.bottoms[0].shape
    hidden, samples = params.integer("num_output"), params.integer("batch_size")
    parted = len(shape) == 3 and not params.has("batch_size")
    if len(shape) < 2 or hidden < 1 or samples < 1 or (not parted and shape[0] % samples):
        sizes = "x".join(map(str, shape))
        raise job.refuse(
            english("takes steps x samples of values, and num_output; it got the shape {sizes}", sizes=sizes)
        )
    _fix_steps(job)
    steps, samples = shape[:2] if parted else (shape[0] // samples, samples)
    width = math.prod(shape) // (steps * samples)
    source = job.bottoms[0].name
    if not parted:
        source = job.step("Reshape", [source, job.integers([steps, samples, width], "rows")], "by_step")
    product = job.step("MatMul", [source, job.floats(job.blob(0, (4 * hidden, width)).T, "weight")], "product")
    drive = job.step("Add", [product, job.floats(job.blob(2, (4 * hidden,)), "bias")], "drive")
    if len(job.bottoms) == 2:
        continues = job.step("Reshape", [job.bottoms[1].name, job.integers([steps, samples], "grid")], "given")
    else:
        continues = job.floats(np.repeat(np.arange(steps)[:, None] > 0, samples, axis=1), "behind_first")
    body = _lstm_body(hidden, job.blob(1, (4 * hidden, hidden)))
    whole = (steps, samples, hidden)
    if parted:
        _run(job, body, drive, continues, whole)
        return
    states = _run(job, body, drive, continues, whole, out="states")
    top = (steps * samples, hidden)
    job.top("Reshape", [states, job.integers(top, "shape")], top)


def _fix_steps(job: LayerJob) -> None:
    job.fix_batch(
        english(
            "layer {name!r} ({type}) has steps, not samples, along its first axis",
            name=job.layer.name,
            type=job.layer.type,
        )
    )


def _cell(add: Any) -> None:
    """The new state of a cell from its gates and the old one; the forget gate lets nothing into a new sequence."""
    add("Mul", ["f_gate", "cont"], "f_open")
    add("Mul", ["f_open", "c"], "old")
    add("Mul", ["i_gate", "g_gate"], "new")
    add("Add", ["old", "new"], "c_next")
    add("Tanh", ["c_next"], "c_limited")
    add("Mul", ["o_gate", "c_limited"], "h_next")


@converts("RNN")
def rnn(job: LayerJob) -> None:
    """A state through tanh, and an output through another; where the second bottom is 0 a new sequence begins."""
    hidden = job.params("recurrent_param").integer("num_output")
    drive, blobs = _from_input(job, hidden, states=1)
    recurrent, outward = (job.blob(blobs + step, (hidden, hidden)) for step in (0, 1))
    body = _Body(("h",), (("x", hidden), ("cont", 1)), hidden)
    body.add("Mul", ["h", "cont"], "kept")
    body.add("MatMul", ["kept", body.constant(recurrent.T, "weight")], "from_state")
    body.add("Add", ["x", "from_state"], "drive")
    body.add("Tanh", ["drive"], "h_next")
    shape = (*job.bottoms[1].shape, hidden)
    states = _run(job, body, drive, job.bottoms[1].name, shape, out="states")
    product = job.step("MatMul", [states, job.floats(outward.T, "out_weight")], "out_product")
    shifted = job.step("Add", [product, job.floats(job.blob(blobs + 2, (hidden,)), "out_bias")], "out_sum")
    job.top("Tanh", [shifted], (*job.bottoms[0].shape[:2], hidden))


def _from_input(job: LayerJob, size: int, *, states: int) -> tuple[str, int]:
    """What the inputs of all steps add, and the number of the first blob behind those it took."""
    params = job.params("recurrent_param")
    exposed = states if params.flag("expose_hidden") else 0
    job.check_counts((2 + exposed, 3 + exposed), (1 + exposed,))
    steps, others = job.bottoms[0].shape, job.bottoms[1].shape
    if len(steps) < 3 or others != steps[:2] or size < 1:
        sizes = " and ".join("x".join(map(str, each)) for each in (steps, others))
        raise job.refuse(
            english(
                "takes steps x samples x values, steps x samples, and num_output; it got the shapes {sizes}",
                sizes=sizes,
            )
        )
    _fix_steps(job)
    width = int(np.prod(steps[2:]))
    source = job.bottoms[0].name
    if len(steps) != 3:
        source = job.step("Reshape", [source, job.integers([0, 0, -1], "rows")], "flat")
    weights = job.blob(0, (size, width))
    product = job.step("MatMul", [source, job.floats(weights.T, "weight")], "product")
    drive = job.step("Add", [product, job.floats(job.blob(1, (size,)), "bias")], "drive")
    if len(job.bottoms) == 2 + exposed:
        return drive, 2
    shape = job.bottoms[2].shape
    static = job.step("Flatten", [job.bottoms[2].name], "static_flat", axis=1)
    matrix = job.blob(2, (size, int(np.prod(shape[1:]))))
    added = job.step("MatMul", [static, job.floats(matrix.T, "static_weight")], "static_product")
    return job.step("Add", [drive, added], "drive_and_static"), 3


class _Body:
    """What one step computes; weights lie in it, so that it stands by itself."""

    def __init__(self, states: Sequence[str], inputs: Sequence[tuple[str, int]], hidden: int) -> None:
        self.states, self._inputs, self._hidden = states, inputs, hidden
        self._nodes: list[Any] = []
        self._constants: list[Any] = []

    def constant(self, values: Array, name: str) -> str:
        from onnx.numpy_helper import from_array

        self._constants.append(from_array(np.ascontiguousarray(values), name))
        return name

    def add(self, op_type: str, inputs: Sequence[str], outputs: str, **attributes: Any) -> None:
        from onnx.helper import make_node

        self._nodes.append(
            make_node(op_type, list(inputs), outputs.split(), name=outputs.split(maxsplit=1)[0], **attributes)
        )

    def graph(self, samples: int) -> Any:
        from onnx.helper import make_graph, make_tensor_value_info

        self.add("Identity", ["h_next"], "shown")
        sizes = [*((name, self._hidden) for name in self.states), *self._inputs]
        given = [make_tensor_value_info(name, _FLOAT, [samples, size]) for name, size in sizes]
        made = [f"{name}_next" for name in self.states] + ["shown"]
        shown = [make_tensor_value_info(name, _FLOAT, [samples, self._hidden]) for name in made]
        return make_graph(self._nodes, "step", given, shown, self._constants)


def _run(
    job: LayerJob,
    body: _Body,
    drive: str,
    continues: str,
    shape: tuple[int, ...],
    *,
    out: str | None = None,
) -> str:
    """Add the Scan, and the tops: the states of all steps (unless they go on to `out`), and the last states."""
    _, samples, hidden = shape
    names = body.states
    cont = job.step("Unsqueeze", [continues, job.integers([2], "column")], "continues")
    exposed = job.params("recurrent_param").flag("expose_hidden")
    if exposed:
        rows = job.integers([samples, hidden], "state_shape")
        given = [
            job.step("Reshape", [bottom.name, rows], f"{name}_first")
            for bottom, name in zip(job.bottoms[-len(names) :], names, strict=True)
        ]
    else:
        given = [job.floats(np.zeros((samples, hidden)), f"{name}_first") for name in names]
    wanted = [*(f"{name}_last" for name in names), out or "hidden"]
    found = job.steps("Scan", [*given, drive, cont], wanted, body=body.graph(samples), num_scan_inputs=2)
    if out is None:
        job.top("Identity", [found[-1]], shape)
    if exposed:
        rows = job.integers([1, samples, hidden], "last_shape")
        for index, last in enumerate(found[:-1], start=1):
            job.top("Reshape", [last, rows], (1, samples, hidden), index=index)
    return found[-1]


@converts("LSTMUnit")
def lstm_unit(job: LayerJob) -> None:
    """One step of a cell: old state, gates and what continues; new state and output."""
    job.check_counts((3,), (2,))
    state, gates, cont = (bottom.shape for bottom in job.bottoms)
    if len(state) != 3 or gates != (*state[:2], 4 * state[2]) or cont != state[:2] or state[0] != 1:
        sizes = ", ".join("x".join(map(str, bottom.shape)) for bottom in job.bottoms)
        raise job.refuse(english("combines blobs of the shapes {sizes}, which do not fit", sizes=sizes))
    _fix_steps(job)
    parts = [f"{gate}_raw" for gate in "ifog"]
    raw = job.steps("Split", [job.bottoms[1].name, job.integers([state[2]] * 4, "sizes")], parts, axis=2)
    made = {"c": job.bottoms[0].name}
    made["cont"] = job.step("Unsqueeze", [job.bottoms[2].name, job.integers([2], "column")], "continues")
    for gate, tensor in zip("ifog", raw, strict=True):
        made[f"{gate}_gate"] = job.step("Tanh" if gate == "g" else "Sigmoid", [tensor], f"{gate}_gate")

    def add(op_type: str, inputs: Sequence[str], output: str) -> None:
        made[output] = job.step(op_type, [made[name] for name in inputs], output)

    _cell(add)
    job.top("Identity", [made["c_next"]], state)
    job.top("Identity", [made["h_next"]], state, index=1)


@converts("ContinuationIndicator")
def continuation(job: LayerJob) -> None:
    """Which steps go on with a sequence: all but the first."""
    job.check_counts((0, 1))
    params = job.params("continuation_indicator_param")
    steps, samples = (params.integer(name) for name in ("time_step", "batch_size"))
    if job.bottoms:
        steps, samples = steps or job.bottoms[0].shape[0], samples or job.bottoms[0].shape[1]
    if min(steps, samples) < 1:
        raise job.refuse(english("needs time_step and batch_size"))
    job.fix_batch(english("layer {name!r} names the number of steps and samples", name=job.layer.name))
    goes_on = np.ones((steps, samples), np.float32)
    goes_on[0] = 0
    job.top("Identity", [job.floats(goes_on, "continues")], (steps, samples))
