"""Running models: onnxruntime sessions and captures of everything they compute."""
