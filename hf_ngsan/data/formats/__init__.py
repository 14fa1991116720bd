"""Readers of the feature files that people have on disk, one file a format behind one registry."""
