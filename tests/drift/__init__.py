"""Frozen checkpoints of every model type, whose outputs must not change with supported versions of transformers."""
