"""The commands of `hf-ngsan`, one a file; `hf_ngsan.cli` is their table.

Importing them imports nothing heavy: what a command needs, its `run` imports.
"""
