"""The lowest layer: files, messages, processes and arguments. Every package but `models` may import it."""
