"""The result for an image: its caption, or the reason for skipping it."""

from typing import NamedTuple


class CaptionedImage(NamedTuple):
    """The result for an image.

    Attributes:
        name: name of the image.
        caption: caption; `None` for a skipped image.
        error: reason for skipping it, or `None`.
        rank: rank of the caption among those of its image, from 0.
        score: mean log-probability of its tokens; `None` unless asked for.
        words: pairs of word and log-probability; `None` unless asked for.
        figure: file of its attention; `None` if there is none.
        confidence: probability that the caption is right; `None` unless asked for.
        unlike_training: whether the image is unlike the captioner's training images; `None` unless asked for.
    """

    name: str
    caption: str | None
    error: str | None
    rank: int = 0
    score: float | None = None
    words: list[tuple[str, float]] | None = None
    figure: str | None = None
    confidence: float | None = None
    unlike_training: bool | None = None


def skipped_error(error: str, skips: bool) -> str:
    """Returns why an image was skipped.

    Raises:
        ValueError: images that cannot be read are not to be skipped.
    """
    if not skips:
        raise ValueError(f"{error.rstrip('.')}; --skip-errors continues after such an image.")
    return error
