"""roundoff finds where a quantized or deployed neural network loses accuracy, proves why, and repairs it."""

__version__ = "0.1.0"
