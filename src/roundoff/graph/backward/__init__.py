"""Gradients of a network as an ONNX model: rules per operation, and the builder that follows them backwards."""
