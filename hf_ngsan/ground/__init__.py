"""The ground floor: files, messages, processes and arguments, which every layer but `models` may use."""
