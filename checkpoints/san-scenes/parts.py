"""Imports of the code of a model's parts in a checkpoint; empty in the package, which has the code of all parts.

`configuration_parts` writes this file when a model is saved with its code.
"""
