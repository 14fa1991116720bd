"""The code of the parts of this model; transformers copies the files of all imports in the text."""
