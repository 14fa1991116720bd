"""The code of the parts of a checkpoint's model; empty in the package, which has the code of all parts."""
