"""How error grows along a network with some of its quantizers on."""
