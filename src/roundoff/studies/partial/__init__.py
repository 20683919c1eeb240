"""How few nodes have to stay in float, or need 16 bits."""
