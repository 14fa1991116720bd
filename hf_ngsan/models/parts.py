"""The code of the parts that the model of a checkpoint has; in the package, which has that of all parts, nothing.

Saving a model with its code writes the file of its checkpoint, see `configuration_parts`.
"""
