"""What a model is, as far as memory is concerned: its layers, their caches and its weights."""
