"""Two runs of one command side by side, and the gate that rests on it."""
