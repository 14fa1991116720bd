"""How commands and scripts tell errors."""

import re

LONGEST_SENTENCE = 2_000
"""Characters that are shown of a message, which may quote a value of somebody's file."""


def sentence(error: Exception) -> str:
    """Returns what an error says, in one line; for one of the operating system the file and the reason."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}."
    text = " ".join(str(error).split())
    return text if len(text) <= LONGEST_SENTENCE else f"{text[:LONGEST_SENTENCE]} …"


def type_and_reason(error: Exception) -> str:
    """Returns the type of an error of somebody's code and the first line of what it says."""
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0].rstrip('.')}" if lines else type(error).__name__


def one_sentence(error: Exception) -> str:
    """Returns what an error says, in one line and without its full stop."""
    from huggingface_hub.errors import StrictDataclassError

    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    if isinstance(error, AttributeError | LookupError | TypeError):  # what they say is not meant for users
        return f"{type(error).__name__}: {lines[0]}".rstrip(".")
    if isinstance(error, StrictDataclassError):  # its last line is the message of the error within
        return re.sub(r"^\w+Error: ", "", lines[-1]).rstrip(".")
    return lines[0].rstrip(".")
