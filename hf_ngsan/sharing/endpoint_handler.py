"""The handler of Inference Endpoints: `handler.py` of a pushed captioner, which needs transformers alone."""

import base64
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from PIL.Image import Image
from transformers import pipeline

PARAMETERS = ("num_beams", "max_new_tokens", "num_return_sequences", "length_penalty", "text", "batch_size")
FILES, NO_FILES = ("image", "video", "frames"), ("visual_features", "visual_boxes", "text")
MAX_IMAGES = 64
TASK: Any = "image-to-text"
"""A task that the checkpoint's configuration defines; the types of transformers lack it."""


class EndpointHandler:
    """Captions images; made once when the endpoint starts, then called for each request.

    Args:
        path: folder of the checkpoint.
    """

    def __init__(self, path: str = "") -> None:
        self.pipeline = pipeline(TASK, model=path, trust_remote_code=True)

    def __call__(self, data: dict[str, Any]) -> list:
        """Answers a request with `[{"generated_text": caption}]`, or for a list of images a list of such lists.

        `data` has `inputs`, an image or a list of images: text in base64, bytes or images of Pillow; or mappings with
        such an `image`, `video` or list of `frames`, or, for a captioner of features, with `visual_features` and
        `visual_boxes`. It may have `parameters`: of `generate()`, and `text`, the beginning of every caption. A
        ValueError says what is wrong with it.
        """
        inputs: Any = data.get("inputs")
        parameters = data.get("parameters") or {}
        unknown = sorted(set(parameters) - set(PARAMETERS))
        if unknown:
            raise ValueError(f"{unknown[0]!r} is no parameter; there are {', '.join(PARAMETERS)}.")
        several = isinstance(inputs, list)
        images: list = inputs if several else [inputs]
        if not 1 <= len(images) <= MAX_IMAGES:
            raise ValueError(f"A request has 1 to {MAX_IMAGES} images, not {len(images)}.")
        answers = self.pipeline([decoded(image, place) for place, image in enumerate(images)], **parameters)
        return answers if several else answers[0]


def decoded(given: Any, place: int, keys: tuple[str, ...] = (*FILES, *NO_FILES)) -> Any:
    """Returns an input with its text decoded from base64; names of files and URLs, at any depth, are a ValueError."""
    if isinstance(given, Mapping) and {*given} <= {*keys}:
        files = {key: decoded(given[key], place, ()) for key in FILES if given.get(key) is not None}
        return {**given, **files}
    if isinstance(given, list) and not keys:
        return [decoded(frame, place, ()) for frame in given]
    if isinstance(given, str):
        with suppress(ValueError):
            return base64.b64decode(given.partition(",")[2] if given.startswith("data:") else given, validate=True)
    if isinstance(given, bytes | Image):
        return given
    raise ValueError(f"Image {place} is no base64, nor a mapping of {', '.join(keys)}; URLs and files are not read.")
