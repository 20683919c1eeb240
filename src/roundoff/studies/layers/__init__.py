"""What quantization costs each layer, and where the loss begins."""
