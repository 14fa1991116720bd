"""The lowest layer: files, messages, processes and arguments, which every package but `models` may use."""
