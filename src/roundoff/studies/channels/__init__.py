"""How the channels of a tensor differ, and whether one scale serves them."""
