"""layer_configs: what each entry names, what was asked for each node, and what became of it."""
