"""The parts of a page: a captioner, draggable regions of a dataset, and a search of images by text."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset

from ..io.packaged import DUAL_ENCODER
from ..io.processes import make_accelerator
from ..loading.calibration import is_calibrated, read_search_calibration
from ..loading.models import load_captioner, load_model, reads_images
from ..loading.pipelines import CaptioningPipeline
from ..retrieval import Hit, IndexFolder
from ..tasks.caption_rows import load_rows, only_features, rows_for, visual_feature_size
from ..tasks.retrieval_search import check_query, embed_images, embed_texts, search_images
from . import drawing

MIN_SIDE = 0.03
"""Smallest side of a box as a fraction of the image side, so that its corner can still be dragged."""
NOTE = (
    "The arrow keys also move a region; with Shift, they move its corner. The lines and the table show the attention "
    "from the last moved region to the others in the encoder (mean over layers and heads). Tap a word, or point at it, "
    "to see its attention map."
)


@dataclass
class Search:
    """Searches an index or uploaded photographs by text, with a dual encoder."""

    model: Any
    processor: Any
    index: IndexFolder | None = None

    def find(self, text: str) -> list[tuple[Hit, bytes | None]]:
        """Returns the best images of the index with their thumbnails; images added since the start are included."""
        assert self.index is not None
        self.index = self.index.current()
        hits = search_images(self.model, self.processor, self.index, text=text)
        return [(hit, self.index.thumbnail_at(hit.place)) for hit in hits]

    def title(self, title: str, best: float) -> str:
        """Returns the title of the results, with a note if the best similarity is too small."""
        calibration = read_search_calibration(self.model.name_or_path)
        missing = None if calibration is None else calibration.missing(best)
        return title if missing is None else f"{missing} {title}"

    def embed(self, image: Any) -> np.ndarray:
        return embed_images(self.model, self.processor, [{"image": image}])[0]

    def scores(self, text: str, embeddings: Sequence[np.ndarray]) -> np.ndarray:
        """Returns the similarity of each image to a text; raises a ValueError if no word is in the vocabulary."""
        check_query(self.processor, text)
        return np.stack(embeddings) @ embed_texts(self.model, self.processor, [text])[0]


@dataclass(frozen=True)
class Parts:
    """The parts of a page: a captioner and its name, rows with features and boxes of regions, and a search."""

    name: str
    pipeline: CaptioningPipeline
    rows: Dataset | None = None
    search: Search | None = None

    @property
    def reads_images(self) -> bool:
        return reads_images(self.pipeline.model.config)

    def captions(self, image: Any, num_beams: int) -> list[dict[str, Any]]:
        """Returns the captions of all beams for a PIL image or a row with features, the best first.

        The captions have attention and, if available, confidence and visualness.
        """
        return self.pipeline(
            image,
            return_attention=True,
            return_confidence=self.reads_images and is_calibrated(self.pipeline.model),
            return_visualness=bool(getattr(self.pipeline.model.config, "adaptive_attention", False)),
            num_beams=num_beams,
            num_return_sequences=num_beams,
            **({} if isinstance(image, Mapping) else {"attention_side": drawing.MAP_SIDE}),
        )


class Regions:
    """A row of a dataset with draggable regions: boxes `(N, 4)`, captions, and attention between the regions."""

    def __init__(self, parts: Parts, row: Mapping[str, Any], boxes: np.ndarray | None = None):
        self.parts, self.row = parts, row
        self.features = np.asarray(row["visual_features"], dtype=np.float32)
        self.names: list[str] = row.get("objects") or [f"region {place + 1}" for place in range(len(self.features))]
        self.boxes = np.asarray(row["visual_boxes"] if boxes is None else boxes, dtype=np.float32)
        self.shape = f"aspect-ratio: {row.get('width') or 1} / {row.get('height') or 1}"

    @cached_property
    def attention(self) -> np.ndarray:
        """Attention between the N regions in the encoder, `(N, N)`: the mean over layers and heads."""
        pipeline = self.parts.pipeline
        inputs = pipeline.processor(visual_features=[self.features], visual_boxes=[self.boxes])
        names = ("visual_features", "visual_boxes", "attention_mask")
        visual = {name: inputs[name].to(pipeline.device) for name in names if name in inputs}
        with torch.inference_mode():
            encoder = pipeline.model.model.encoder
            encoded = encoder(**visual, output_attentions=True, attn_implementation="eager")
        return torch.stack(encoded.attentions).float().mean((0, 2))[0].cpu().numpy()

    def html(self, chosen: int, before: "Regions", num_beams: int) -> str:
        """Returns the drawing, its captions, and the weights of the chosen region after and before its move."""
        answers = self.parts.captions({"visual_features": self.features, "visual_boxes": self.boxes}, num_beams)
        captions = drawing.captions_html(answers, lambda weights: drawing.regions_over(self.boxes, weights, self.shape))
        stage = drawing.drawing(self.names, self.boxes, chosen, self.attention, self.shape)
        table = drawing.table_of(self.names, chosen, self.attention, before.attention)
        return drawing.viewer(stage, captions + table, NOTE, kind="wide")


def moved(boxes: np.ndarray, change: Mapping[str, Any]) -> np.ndarray:
    """Returns boxes `(N, 4)`, x1, y1, x2, y2 within [0, 1], after one of them was moved or resized within the image.

    The change has the `index` of the box, `dx` and `dy` as fractions of the sides, and `corner`, true if only the
    corner is moved.
    """
    boxes = np.array(boxes, dtype=np.float32)
    box, by = boxes[change["index"]], np.nan_to_num([float(change["dx"]), float(change["dy"])]).clip(-2, 2)
    if change.get("corner"):
        box[2:] = np.clip(box[2:] + by, np.minimum(box[:2] + MIN_SIDE, 1), 1)
        box[:2] = np.minimum(box[:2], box[2:] - MIN_SIDE)
    else:
        size = box[2:] - box[:2]
        box[:2] = np.clip(box[:2] + by, 0, 1 - size)
        box[2:] = np.minimum(box[:2] + size, 1)
    return boxes


def load_parts(model: str, data: str | None = None, split: str = "test", index: str | None = None) -> Parts:
    """Loads the parts of a page.

    Args:
        model: a captioner, as for `hf-ngsan caption`.
        data, split: a dataset of regions, such as `"scenes"`.
        index: folder written by `hf-ngsan index`.

    Raises a ValueError if the captioner reads no images and no dataset is given, or the dataset has no regions for it.
    """
    folder = None if index is None else IndexFolder.open(Path(index))
    captioner, processor = load_captioner(model)
    device = make_accelerator().device
    pipeline = CaptioningPipeline(model=captioner.to(device), processor=processor)
    with_images = reads_images(captioner.config)
    if not with_images and data is None:
        raise ValueError(
            f"{model} has no vision encoder and reads no images; give a dataset with --data, such as scenes, or add a "
            "vision encoder with hf-ngsan attach-vision."
        )
    rows = None if data is None else regions_of(captioner, processor, data, split)
    search = None
    if folder is not None or with_images:
        encoder, its_processor = load_model(folder.description.model if folder else DUAL_ENCODER, "retrieval")
        search = Search(encoder.to(device), its_processor, folder)
    return Parts(model, pipeline, rows, search)


def regions_of(captioner: Any, processor: Any, data: str, split: str) -> Dataset:
    """Returns rows with features and boxes; raises a ValueError if they do not match the captioner."""
    rows = load_rows(data, split, with_captions=False)
    if visual_feature_size(rows) is None or rows[0].get("visual_boxes") is None:
        raise ValueError(f"{data}, split {split}, has no regions with boxes; give a dataset such as scenes.")
    return rows_for(captioner, processor, only_features(rows), data)
