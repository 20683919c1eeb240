"""Plain words."""
