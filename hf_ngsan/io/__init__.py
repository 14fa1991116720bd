"""The lowest layer, which every package but `models` may import: files and folders that survive a crash, and messages.

- `files`: single files. `folders`: a folder is locked, written under a temporary name, then renamed; a manifest shows
  damage.
- `shards`: a folder of rows is filled shard by shard, resumed, and read as one dataset.
- `fields`: JSON files as typed dataclasses. `packaged`: what comes with the package, by name.
"""
