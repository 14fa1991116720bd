"""The parts of a page: a captioner, rows of a dataset with regions, and an index of images."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset

from ..data.readers import find_reader, parse_spec
from ..io.packaged import DUAL_ENCODER
from ..io.processes import make_accelerator
from ..loading.confidence import is_calibrated
from ..loading.models import load_captioner, load_model, reads_images
from ..loading.pipelines import CaptioningPipeline
from ..models.configuration_hub import MissingBackboneError
from ..retrieval import Hit, IndexFolder
from ..tasks.caption_rows import load_rows, only_features, rows_for, visual_feature_size
from ..tasks.retrieval_search import check_query, embed_images, embed_texts, search_images

logger = logging.getLogger(__name__)


@dataclass
class Search:
    """Search of an index of images by words.

    Attributes:
        index: the index, opened.
        model, processor: the dual encoder that made it.
    """

    index: IndexFolder
    model: Any
    processor: Any

    def find(self, text: str) -> list[tuple[Hit, bytes | None]]:
        """Returns the images for a text, the best first, with their thumbnails; the index may have grown since."""
        self.index = self.index.current()
        hits = search_images(self.model, self.processor, self.index, text=text)
        return [(hit, self.index.thumbnail_at(hit.place)) for hit in hits]


@dataclass(frozen=True)
class PhotographSearch:
    """Search of uploaded photographs by words, with a dual encoder."""

    model: Any
    processor: Any

    def embed(self, images: Sequence[Any]) -> list[np.ndarray]:
        """Returns the embedding of each image of Pillow, float32 `(dimension,)`."""
        return [embed_images(self.model, self.processor, [{"image": image}])[0] for image in images]

    def scores(self, text: str, embeddings: Sequence[np.ndarray]) -> np.ndarray:
        """Returns the similarity of each image to a text; raises a ValueError for a text without a known word."""
        check_query(self.processor, text)
        return np.stack(list(embeddings)) @ embed_texts(self.model, self.processor, [text])[0]


@dataclass(frozen=True)
class Parts:
    """The parts of a page.

    Attributes:
        name: name of the captioner.
        pipeline: pipeline of the captioner.
        rows: rows of a dataset of regions, features with boxes, for the captioner; or None.
        search: search of an index by words; or None.
        photograph_search: search of uploaded photographs by words; or None.
    """

    name: str
    pipeline: CaptioningPipeline
    rows: Dataset | None = None
    search: Search | None = None
    photograph_search: PhotographSearch | None = None

    @property
    def reads_images(self) -> bool:
        return reads_images(self.pipeline.model.config)

    def captions(self, image: Any, num_beams: int, **options: Any) -> list[dict[str, Any]]:
        """Returns the captions of all beams, the best first, with attention, and confidence and visualness if known.

        Args:
            image: an image of Pillow, or a row with features.
            num_beams: beams.
            options: further arguments of the pipeline.
        """
        return self.pipeline(
            image,
            return_attention=True,
            return_confidence=self.reads_images and is_calibrated(self.pipeline.model),
            return_visualness=bool(getattr(self.pipeline.model.config, "adaptive_attention", False)),
            num_beams=num_beams,
            num_return_sequences=num_beams,
            **options,
        )


def load_parts(model: str, data: str | None = None, split: str = "test", index: str | None = None) -> Parts:
    """Loads the parts of a page.

    Args:
        model: a captioner, as `hf-ngsan caption` takes it.
        data, split: a dataset of regions, such as `"scenes"`.
        index: folder that `hf-ngsan index` made.

    Raises:
        ValueError: the captioner reads no images and no dataset is given; the dataset has no regions with boxes, or
            regions of another backbone; or the index is damaged.
        FileNotFoundError: no such folder.
    """
    if data is not None:
        parse_spec(data, find_reader(data))
    folder = None if index is None else IndexFolder.open(Path(index))
    captioner, processor = load_captioner(model)
    device = make_accelerator().device
    pipeline = CaptioningPipeline(model=captioner.to(device), processor=processor)
    if not reads_images(captioner.config) and data is None:
        raise ValueError(
            f"{model} has no vision encoder and reads no images; give it a dataset with --data, such as scenes, or a "
            "vision encoder with hf-ngsan attach-vision."
        )
    rows = None if data is None else regions_of(captioner, processor, data, split)
    if folder is None:
        search = photograph_search(device) if reads_images(captioner.config) else None
        return Parts(model, pipeline, rows, photograph_search=search)
    dual_encoder, its_processor = load_model(folder.description.model, "retrieval")
    dual_encoder.to(device)
    return Parts(model, pipeline, rows, Search(folder, dual_encoder, its_processor))


def photograph_search(device: torch.device) -> PhotographSearch | None:
    """Returns the search of uploaded photographs with the packaged dual encoder; `None` if its packages are missing."""
    try:
        loaded: Any = load_model(DUAL_ENCODER, "retrieval")
    except MissingBackboneError as error:
        logger.warning("The page cannot search photographs: %s", error)
        return None
    return PhotographSearch(loaded[0].to(device), loaded[1])


def regions_of(captioner: Any, processor: Any, data: str, split: str) -> Dataset:
    """Returns rows with features and boxes of regions; raises a ValueError unless they fit the captioner."""
    rows = load_rows(data, split, with_captions=False)
    if visual_feature_size(rows) is None or rows[0].get("visual_boxes") is None:
        raise ValueError(
            f"{data}, split {split}, has no visual_features with visual_boxes, whose places could be changed; give a "
            "dataset of regions, such as scenes."
        )
    return rows_for(captioner, processor, only_features(rows), data)
