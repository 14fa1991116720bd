"""Captions of image files by the graphs beside a captioner, without torch and transformers."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from PIL import Image, ImageOps

from ..data.images import FORMATS
from ..exporting.captioner import Captioner, is_one_of


class CaptionedImage(NamedTuple):
    """The result for an image: its caption, or the reason for skipping it; parts not asked for are `None`."""

    name: str
    caption: str | None
    error: str | None
    rank: int = 0  # of the caption among those of its image
    score: float | None = None  # mean log-probability of its tokens
    words: list[tuple[str, float]] | None = None  # with their log-probabilities
    figure: str | None = None  # file of its attention
    confidence: float | None = None  # probability that the caption is right
    unlike_training: bool | None = None  # whether the image is unlike the captioner's training images


def skipped_error(error: str, skips: bool) -> str:
    """Returns why an image was skipped; raises a ValueError where such images are not to be skipped."""
    if not skips:
        raise ValueError(f"{error.rstrip('.')}; --skip-errors continues after such an image.")
    return error


IMAGES_AT_ONCE = 16  # more are not faster, and take more memory


def caption_files(
    captioner: Captioner,
    paths: Sequence[str],
    *,
    batch_size: int = IMAGES_AT_ONCE,
    with_scores: bool = False,
    **search: Any,
) -> Iterator[CaptionedImage]:
    """Yields the caption of each file or URL, in their order; one that cannot be read has the reason."""
    size = min(batch_size, IMAGES_AT_ONCE)
    image_side = max(captioner.settings["image"][side] for side in ("height", "width"))
    for start in range(0, len(paths), size):
        captioned: dict[int, CaptionedImage] = {}
        images: dict[int, Any] = {}
        for number in range(start, min(start + size, len(paths))):
            try:
                images[number] = read_image(paths[number], f"image {number}", image_side)
            except ValueError as error:
                captioned[number] = CaptionedImage(paths[number], None, str(error))
        if images:
            inputs = captioner.prepare(list(images.values()))
            ids = captioner.generate(inputs, **search)
            scores = scores_of(captioner, inputs, ids) if with_scores else [(None, None)] * len(ids)
            for number, caption, (score, words) in zip(images, captioner.words.decode(ids), scores, strict=True):
                captioned[number] = CaptionedImage(paths[number], caption, None, score=score, words=words)
        yield from (captioned[number] for number in sorted(captioned))


def read_image(path: str, name: str, least_side: int) -> Image.Image:
    """Reads a photograph; the rest is left to `load_image`, whose import takes seconds, and which reads it equally."""
    if not path.startswith(("http://", "https://", "data:")):
        try:
            with Image.open(path, formats=FORMATS) as image:
                image.draft(None, (2 * least_side, 2 * least_side))
                if image.mode in ("RGB", "L", "CMYK") and not image.has_transparency_data:
                    return ImageOps.exif_transpose(image).convert("RGB")
        except FileNotFoundError as error:
            raise ValueError(f"{name.capitalize()} ({path}) cannot be read: {error.strerror}.") from error
        except Exception:  # Pillow's plugins raise anything on damaged data
            pass  # `load_image` says what it is
    from ..models.image_processing_captioning import load_image

    return load_image(path, name, least_side)


def scores_of(
    captioner: Captioner, inputs: dict[str, np.ndarray], ids: np.ndarray
) -> list[tuple[float, list[tuple[str, float]]]]:
    """Returns score and word scores of captions `(B, length)`, as [`~hf_ngsan.models.text_scores.text_scores`] does."""
    is_end = is_one_of(ids[:, 1:], captioner.decoding["eos_token_ids"])
    lengths = np.where(is_end.any(-1), is_end.argmax(-1) + 1, is_end.shape[1])
    ids = ids[:, : 1 + lengths.max()]
    all_scores = captioner.log_probabilities(inputs, ids[:, :-1])
    of_tokens = np.take_along_axis(all_scores, ids[:, 1:, None], axis=-1)[..., 0]
    vocabulary: Any = captioner.words.vocabulary
    of_captions = []
    for tokens, length, values in zip(ids[:, 1:].tolist(), lengths.tolist(), of_tokens.tolist(), strict=True):
        pairs = list(zip(tokens, values, strict=True))[:length]
        words = [(vocabulary[token], value) for token, value in pairs if token not in captioner.words.special]
        of_captions.append((sum(values[:length]) / max(length, 1), words))
    return of_captions
