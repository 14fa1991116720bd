"""Photographs that other packages bring: captions of the packaged captioner, and search by words among them."""

import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from ..io.packaged import CAPTIONER, DUAL_ENCODER, installed_photographs
from ..loading.models import find_model_folder, load_model
from ..models.image_processing_captioning import load_image
from ..tasks.retrieval_search import embed_images, embed_texts

FUNCTION_WORDS = frozenset(
    """a an the this that these those some his her its their he she it they who which is are was were be been being has
    have had and or but while as in on at of to by for from with without into onto over under up down out off through
    across along around behind beside between near next against towards front back there""".split()  # noqa: SIM905
)
"""Words that show nothing, so that a map of their attention says nothing either."""
SURE = 0.5
"""Confidence from which a caption counts as sure: more likely than not it is as good as the better half of those of the
calibration."""
MAP_SIDE = 200
"""Longest side in pixels of an attention map."""
NOTHING_FITS = 0.394
"""Similarity below which no image fits a query. On Flickr8k's validation split, the best of 16 photographs that a
caption does not describe reaches it as often as the caption's own photograph does not: 22 times in 100
(`python benchmarks/search_threshold.py`)."""
DARKEST = 0.25
"""Brightness of a photograph where a word has no attention."""
BRIGHT_SHARE = 0.05
"""Share of a photograph that has its full brightness, where the attention of a word is largest."""


@dataclass(frozen=True)
class Captioned:
    """A photograph with its caption.

    Attributes:
        name: name of the file.
        image: the photograph, upright.
        caption: the caption.
        confidence: see [`~hf_ngsan.loading.confidence.Judgement`].
        is_unlike: whether the photograph is unlike the training images.
        looked: pairs of a content word and the photograph, bright where the captioner looked for the word.
    """

    name: str
    image: Image.Image
    caption: str
    confidence: float
    is_unlike: bool
    looked: list[tuple[str, Image.Image]]

    @property
    def is_sure(self) -> bool:
        return self.confidence >= SURE and not self.is_unlike


@dataclass(frozen=True)
class Found:
    """The images that are nearest to a query.

    Attributes:
        query: the query.
        hits: pairs of an image's place and its similarity, the best first.
    """

    query: str
    hits: list[tuple[int, float]]

    @property
    def fits(self) -> bool:
        """Whether the nearest image is similar enough."""
        return self.hits[0][1] >= NOTHING_FITS


def copy_photographs(folder: Path) -> list[Path]:
    """Copies the photographs that installed packages bring into a folder; returns their files."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, file in installed_photographs().items():
        if not (folder / f"{name}.jpg").exists():
            shutil.copyfile(file, folder / f"{name}.jpg")
    return sorted(folder.glob("*.jpg"))


def caption_photographs(files: Sequence[Path]) -> list[Captioned]:
    """Captions photographs with the packaged captioner; the sure ones come first.

    Raises:
        MissingBackboneError: the weights of the packaged models (extra `photos`) are not installed.
    """
    from transformers import pipeline

    captioner = pipeline("image-to-text", model=find_model_folder(CAPTIONER))  # type: ignore[call-overload]
    options = {"return_attention": True, "return_confidence": True, "attention_side": MAP_SIDE}
    found = []
    for file, [answer] in zip(files, captioner([str(file) for file in files], **options), strict=True):
        looked = [
            (word, lit(answer["image"], weights))
            for word, weights in zip(answer["words"], answer["attention"], strict=True)
            if word not in FUNCTION_WORDS
        ]
        words, confidence, is_unlike = answer["generated_text"], answer["confidence"], answer["unlike_training"]
        found.append(Captioned(file.name, load_image(file), words, confidence, is_unlike, looked))
    return sorted(found, key=lambda one: (one.is_unlike, -one.confidence))


def lit(image: Image.Image, weights: np.ndarray) -> Image.Image:
    """Returns a photograph that is bright where the weights `(height, width)` are large, and dark elsewhere."""
    large = max(float(np.quantile(weights, 1 - BRIGHT_SHARE)), 1e-12)
    light = DARKEST + (1 - DARKEST) * np.clip(weights / large, 0, 1)[..., None]
    return Image.fromarray((np.asarray(image.convert("RGB")) * light).astype(np.uint8))


def find_images(images: Sequence[Image.Image], queries: Sequence[str], top_k: int = 3) -> list[Found]:
    """Searches images by words with the packaged dual encoder.

    Raises:
        MissingBackboneError: the weights of the packaged models (extra `photos`) are not installed.
    """
    model, processor = load_model(DUAL_ENCODER, "retrieval")
    rows: list[dict[str, Any]] = [{"image": image} for image in images]
    similarities = embed_texts(model, processor, queries) @ embed_images(model, processor, rows).T
    searches = []
    for query, of_images in zip(queries, similarities, strict=True):
        nearest = np.argsort(-of_images, kind="stable")[:top_k]
        searches.append(Found(query, [(int(place), float(of_images[place])) for place in nearest]))
    return searches
