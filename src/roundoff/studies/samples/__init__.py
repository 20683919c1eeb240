"""Which samples a quantized network does worst on."""
