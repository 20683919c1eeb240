"""The nouns every other layer speaks in; numpy and the standard library only."""
