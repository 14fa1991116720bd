"""The commands of `hf-ngsan`, one per file; `hf_ngsan.cli` lists them.

A command imports slow libraries, such as torch, in its `run`, so that `--help` is quick.
"""
