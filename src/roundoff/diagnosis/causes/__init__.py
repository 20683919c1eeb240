"""The causes there are, a module for each family of them; `registry` finds all that a module here declares.

A module whose name begins with ``device_`` is about what a device computes, one with ``file_`` about what the file
of a quantized model holds, any other about a quantization.
"""
