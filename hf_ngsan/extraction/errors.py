"""The exception of extraction."""


class ExtractionError(ValueError):
    """Images, a backbone or a folder that cannot be used: the message names it and says what to do."""
