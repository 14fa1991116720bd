"""Everything that travels with a checkpoint: configurations, models, processors and pipelines, in one flat folder.

The folder is flat because transformers copies the files of a model next to its weights and imports them from there.
Nothing is imported here, so that a file can be loaded without the others.
"""
