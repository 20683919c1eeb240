"""Axera's Pulsar2: its configuration, its tables and its output, for plain ONNX models on a CPU."""
