"""Files of other tools that are no networks to roundoff, by their endings: what they are and what to do."""

from pathlib import Path

from roundoff.messages.message import english

_KNOWN: dict[str, tuple[str, str]] = {
    ".pt": (
        english("a PyTorch file"),
        english(
            "torch.onnx.export(module, inputs, 'model.onnx'); activations: "
            "roundoff.torch.capture(module, inputs)"
        ),
    ),
    ".om": (
        english("a compiled model of Ascend"),
        english(
            "give the .onnx it was compiled from; dump the device with msaccucmp or acl.json and "
            "use ascend compare"
        ),
    ),
    ".rknn": (
        english("a compiled model of Rockchip"),
        english(
            "give the .onnx it was built from; rknn.accuracy_analysis(inputs, output_dir=DIR), "
            "then --dumps DIR"
        ),
    ),
    ".mnn": (
        english("a converted model of MNN"),
        english(
            "give the .onnx it was converted from; save its tensors as .npy files named like "
            "those of the model"
        ),
    ),
    ".engine": (
        english("a compiled engine of TensorRT"),
        english(
            "give the .onnx it was built from; polygraphy run model.onnx --trt --save-outputs "
            "out.json, then --dumps out.json"
        ),
    ),
    ".h5": (
        english("a Keras model"),
        english("python -m tf2onnx.convert --keras model.h5 --output model.onnx"),
    ),
    ".pb": (
        english("a TensorFlow graph"),
        english("python -m tf2onnx.convert --graphdef model.pb --inputs x:0 --outputs y:0 --output model.onnx"),
    ),
    ".axmodel": (
        english("a compiled model of Axera"),
        english("give the .onnx it was built from; save what the device computes as .npy files, then --dumps DIR"),
    ),
    ".hbm": (
        english("a compiled model of Horizon"),
        english("give the .onnx it was built from; save what the device computes as .npy files, then --dumps DIR"),
    ),
    ".bmodel": (
        english("a compiled model of Sophgo"),
        english(
            "give the .onnx it was built from; model_runner.py --dump_all_tensors --output "
            "out.npz, then --dumps out.npz"
        ),
    ),
    ".dlc": (
        english("a converted model of Qualcomm"),
        english(
            "give the .onnx it was converted from; snpe-net-run --debug or qnn-net-run --debug, "
            "then --dumps output"
        ),
    ),
    ".gguf": (
        english("weights of llama.cpp, without a graph"),
        english("give the network as .onnx: optimum-cli export onnx --model NAME DIR"),
    ),
}  # fmt: skip
_SAME = {".pth": ".pt", ".ckpt": ".pt", ".plan": ".engine", ".trt": ".engine", ".keras": ".h5", ".hbbin": ".hbm"}


def foreign_file(path: Path) -> tuple[str, str] | None:
    """What a file of another tool is, by its ending, and what to do with it; None for all others."""
    suffix = path.suffix.lower()
    return _KNOWN.get(_SAME.get(suffix, suffix))
