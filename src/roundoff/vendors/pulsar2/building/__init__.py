"""pulsar2 build: from a configuration and a model to tables, a quantized model and everything beside it."""
