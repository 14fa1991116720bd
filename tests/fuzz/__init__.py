"""Seeded hostile inputs for every command: files, training configs and options."""
