"""Runs in the environment of onnxruntime-qnn: quantizes a network and writes what the HTP emulator computes.

The job: model, calibration (an .npz of inputs, samples along the first axis), samples (an .npz each), out; and,
where wanted, scales (tensor to the factor of its scale).
"""

import json
import os
import sys
from pathlib import Path
from typing import Any

os.environ["ORT_DISABLE_TELEMETRY"] = "1"

import numpy as np
import onnx
import onnxruntime as ort
import onnxruntime_qnn
from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize
from onnxruntime.quantization.execution_providers.qnn import get_qnn_qdq_config, qnn_preprocess_model


class Rows(CalibrationDataReader):  # type: ignore[misc]
    """The samples to calibrate on, one by one."""

    def __init__(self, path: str) -> None:
        given = dict(np.load(path))
        count = len(next(iter(given.values())))
        self._rows = iter([{name: values[k : k + 1] for name, values in given.items()} for k in range(count)])

    def get_next(self) -> Any:
        """The next one; None behind the last."""
        return next(self._rows, None)


def main(job: dict[str, Any]) -> None:
    out = Path(job["out"])
    out.mkdir(parents=True, exist_ok=True)
    path = quantized(job, out)
    proto = onnx.load(path)
    rescaled(proto, job.get("scales", {}))
    onnx.save(proto, path)
    wanted = {value.name for value in proto.graph.output}
    taps = with_taps(proto)
    tapped = out / "tapped.onnx"
    onnx.save(proto, tapped)
    session = opened(tapped)
    names = [each.name for each in session.get_outputs()]
    for place, sample in enumerate(job["samples"]):
        values = dict(
            zip(
                names,
                session.run(None, dict(np.load(sample))),
                strict=True,
            )
        )
        found = {
            str(taps.get(name, name)): array for name, array in values.items() if name in taps or name in wanted
        }
        np.savez(out / f"s{place}.npz", **found)
    tapped.unlink()


def quantized(job: dict[str, Any], out: Path) -> Path:
    model, ready = job["model"], out / "ready.onnx"
    if qnn_preprocess_model(model, ready):
        model = str(ready)
    path = out / f"{Path(job['model']).stem}.qdq.onnx"
    kinds: dict[str, Any] = {"activation_type": QuantType.QUInt8, "weight_type": QuantType.QInt8}
    quantize(model, path, get_qnn_qdq_config(model, Rows(job["calibration"]), per_channel=True, **kinds))
    return path


def rescaled(proto: Any, factors: dict[str, float]) -> None:
    held = {each.name: each for each in proto.graph.initializer}
    for node in proto.graph.node:
        if node.op_type == "QuantizeLinear" and node.input[0] in factors:
            scale = onnx.numpy_helper.to_array(held[node.input[1]]) * np.float32(factors[node.input[0]])
            held[node.input[1]].CopyFrom(onnx.numpy_helper.from_array(scale, node.input[1]))


def with_taps(proto: Any) -> dict[str, str]:
    """Another output behind each quantized tensor; what it is called and whose it is."""
    own = {each.name for each in (*proto.graph.input, *proto.graph.initializer)}
    taps: dict[str, str] = {}
    for node in list(proto.graph.node):
        if node.op_type == "QuantizeLinear" and node.input[0] not in own:
            tap = f"tap{len(taps)}"
            taps[tap] = node.input[0]
            proto.graph.node.append(
                onnx.helper.make_node("DequantizeLinear", [node.output[0], *node.input[1:]], [tap], name=tap)
            )
            proto.graph.output.append(onnx.helper.make_tensor_value_info(tap, onnx.TensorProto.FLOAT, None))
    return taps


def opened(path: Path) -> Any:
    ort.register_execution_provider_library("QNNExecutionProvider", onnxruntime_qnn.get_library_path())
    device = next(each for each in ort.get_ep_devices() if each.ep_name == "QNNExecutionProvider")
    options = ort.SessionOptions()
    options.log_severity_level = 4
    backend = f"{onnxruntime_qnn.LIB_DIR_FULL_PATH}/libQnnHtp.so"
    options.add_provider_for_devices(
        [device], {"backend_path": backend, "htp_graph_finalization_optimization_mode": "0"}
    )
    options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    return ort.InferenceSession(str(path), options)


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
