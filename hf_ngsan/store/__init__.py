"""Folders that survive a crash: extractions, conversions, indexes, graphs, checkpoints, models and exports.

- `folders`: writes a folder under a temporary name, then renames it; a manifest shows damage.
- `locks`: lets one command at a time write a folder.
- `shards`: fills a folder of rows shard by shard, resumes it, and makes it one dataset.
- `fields`: reads JSON files into typed dataclasses.

Single files are written by [`hf_ngsan.ground.files`].
"""
