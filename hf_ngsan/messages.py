"""How commands and scripts tell errors."""


def sentence(error: Exception) -> str:
    """What an error says, in one line; for one of the operating system the file and the reason."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}."
    return " ".join(str(error).split())
