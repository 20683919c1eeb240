"""The exact-integer simulator: what a quantized network computes on integer hardware."""
