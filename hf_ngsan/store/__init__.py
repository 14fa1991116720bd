"""Folders that survive a crash: extractions, conversions, indexes, graphs, checkpoints, models and exports.

- `folders`: a folder is written aside and takes its place, or the old folder's, whole; its manifest tells damage.
- `locks`: one command at a time writes a folder.
- `shards`: a folder of rows grows shard by shard, is resumed, and becomes one dataset.
- `fields`: JSON files are read into dataclasses whose fields have their types.

Single files are written by [`hf_ngsan.ground.files`].
"""
