"""The one exception of the data pillar."""


class DataError(ValueError):
    """Data that cannot be used: the message names the file, row and field, and says what to do."""
