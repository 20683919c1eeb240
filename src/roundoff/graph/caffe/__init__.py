"""Caffe in and out without Caffe: its two file formats, its layers as ONNX, and quantized nets written back."""
