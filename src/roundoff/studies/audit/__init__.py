"""Which precision was asked for each node, and which it really has."""
