"""Everything that travels with a checkpoint: configurations, models, processors and the pipeline, in one flat folder.

Nothing is imported here, so that a file can be loaded without its neighbours.
"""
