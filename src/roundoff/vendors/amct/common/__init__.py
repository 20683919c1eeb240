"""What all flavours have in common."""
