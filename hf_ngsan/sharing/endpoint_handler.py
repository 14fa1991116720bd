"""The handler for Inference Endpoints: `handler.py` of a pushed captioner; it needs only transformers."""

import base64
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from PIL.Image import Image
from transformers import pipeline

PARAMETERS = ("num_beams", "max_new_tokens", "num_return_sequences", "length_penalty", "text", "batch_size")
FILES, NO_FILES = ("image", "video", "frames"), ("visual_features", "visual_boxes", "text")
MAX_IMAGES, URL_SAFE = 64, str.maketrans("-_", "+/")
TASK: Any = "image-to-text"
"""A task that the checkpoint's configuration defines; it is missing in the type hints of transformers."""


class EndpointHandler:
    """Captions images. The endpoint makes one handler when it starts and calls it for each request.

    Args:
        path: folder of the checkpoint.
    """

    def __init__(self, path: str = "") -> None:
        self.pipeline = pipeline(TASK, model=path, trust_remote_code=True)

    def __call__(self, data: dict[str, Any]) -> list:
        """Answers a request with `[{"generated_text": caption}]`, or for a list of images a list of such lists.

        `data` has `inputs`, an image or a list of images: base64 text, bytes or PIL images; or mappings with such an
        `image`, `video` or list of `frames` or, for a captioner of features, with `visual_features` and
        `visual_boxes`. It may have `parameters`: arguments of `generate()`, and `text`, the beginning of every caption.
        Raises a ValueError for invalid data.
        """
        inputs: Any = data.get("inputs")
        parameters = data.get("parameters") or {}
        unknown = sorted(set(parameters) - set(PARAMETERS))
        if unknown:
            raise ValueError(f"{unknown[0]!r} is not a parameter; available: {', '.join(PARAMETERS)}.")
        several = isinstance(inputs, list)
        images: list = inputs if several else [inputs]
        if not 1 <= len(images) <= MAX_IMAGES:
            raise ValueError(f"A request has 1 to {MAX_IMAGES} images, not {len(images)}.")
        answers = self.pipeline([decoded_input(image, place) for place, image in enumerate(images)], **parameters)
        return answers if several else answers[0]


def decoded_input(value: Any, place: int, keys: tuple[str, ...] = (*FILES, *NO_FILES)) -> Any:
    """Returns an input with its base64 text decoded; raises a ValueError for file names and URLs at any depth."""
    if isinstance(value, Mapping) and {*value} <= {*keys}:
        files = {key: decoded_input(value[key], place, ()) for key in FILES if value.get(key) is not None}
        return {**value, **files}
    if isinstance(value, list) and not keys:
        return [decoded_input(frame, place, ()) for frame in value]
    if isinstance(value, str):
        with suppress(ValueError):
            return from_base64(value)
    if isinstance(value, bytes | Image):
        return value
    raise ValueError(f"Image {place} is not base64 or a mapping of {', '.join(keys)}; URLs and files are not read.")


def from_base64(text: str) -> bytes:
    """Decodes base64, also in lines (RFC 2045), URL-safe (RFC 4648), and after the prefix of a data URL."""
    encoded = text.partition(",")[2] if text.startswith("data:") else text
    encoded = "".join(encoded.split()).translate(URL_SAFE).rstrip("=")
    return base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
