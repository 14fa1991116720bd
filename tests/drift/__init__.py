"""Frozen checkpoints of every model type, which must compute the same under every supported version of transformers."""
