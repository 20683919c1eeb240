"""How values are distributed, and what their quantizers make of them."""
