"""Many models on many chips: units of work, the store of what is done, and who does it."""
