"""Search for the cheapest quantization that meets an accuracy goal."""
