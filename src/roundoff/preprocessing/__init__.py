"""How inputs are made of pixels: one table of conventions, and which of them numbers speak for."""
