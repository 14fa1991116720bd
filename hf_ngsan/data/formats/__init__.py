"""Third-party feature formats, one file each, behind one registry."""
