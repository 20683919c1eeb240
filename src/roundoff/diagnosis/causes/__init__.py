"""The causes there are, one module each; `registry` finds them by their names.

A module whose name begins with ``device_`` is about what a device computes, one with ``file_`` about what the file
of a quantized model holds, any other about a quantization.
"""
