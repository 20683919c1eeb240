"""Axera's Pulsar2: its configuration, data sets, tables and commands, on top of what serves any chip."""
