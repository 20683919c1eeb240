"""ONNX in and out: load, name, infer shapes, tap."""
