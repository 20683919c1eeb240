"""Which parts of a network hurt: each is quantized alone, or alone left in float, and the outputs are compared."""
