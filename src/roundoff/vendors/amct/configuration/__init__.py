"""AMCT's configurations: the full one in JSON, and the simplified one in protocol buffers' text."""
