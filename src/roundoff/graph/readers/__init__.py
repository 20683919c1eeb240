"""Reading quantized models that any tool wrote: each becomes a float model and quantizers.

A dialect is first rewritten to QuantizeLinear and DequantizeLinear around float operators (`qoperator`, ...); from
there on there is one way (`extraction`).
"""

from roundoff.graph.readers.reader import read_quantized

__all__ = ["read_quantized"]
