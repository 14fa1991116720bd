"""Reads the inputs of the package's pipelines one by one and collates them to batches, in any loader worker."""

import os
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, ClassVar

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, Dataset, Subset
from transformers.feature_extraction_utils import BatchFeature
from transformers.pipelines.base import Pipeline

from ..data.boxes import ImageBoxes
from ..guests.captioners import batches
from ..io.messages import one_sentence
from ..models.attention_maps import attention_maps
from ..models.configuration_hub import check_choice
from ..models.images import ImageError, least_side_of, load_image
from ..models.pipeline_image_to_text import ImageToTextPipeline
from ..models.processing_captioning import (
    TOKENIZING,
    boxes_in_shares,
    check_image_boxes,
    check_whole_images,
    checked_array,
    pad_clips,
    pad_visual_inputs,
)

PIXELS = ("pixel_values", "pixel_mask")
CLIPS = ("frames", "video")
"""Keys of video clips: a list of images, or a file."""
FRAME_SIDE = 160
"""Longest side in pixels of the frames in figures."""


@dataclass
class Item:
    """One input of a pipeline, and its state until it is answered."""

    name: str  # name in errors
    pixels: Any = None  # outputs of the image processor
    size: tuple[int, int] | None = None  # width and height of its attention maps, if requested
    image: Image.Image | None = None  # at this size
    frames: list[Image.Image] | None = None  # frames of a clip for figures of the attention, if requested
    features: np.ndarray | None = None  # `(num_regions, visual_feature_size)`, in place of an image
    boxes: np.ndarray | None = None  # `(num_regions, 4)` within [0, 1]; after the answer, boxes of the maps
    text: str = ""  # beginning of its caption, or the question about it
    error: Exception | None = None  # reason why it could not be read
    answers: list[dict] = field(default_factory=list)


@dataclass
class Batch:
    """Items, and the model inputs of those that could be read, grouped by kind of input."""

    items: list[Item]
    groups: list[tuple[list[Item], BatchFeature]]


@dataclass
class ItemReader:
    """Reads inputs for the processor and configuration of a model; without the model, so it can be sent to workers."""

    mask_name: ClassVar[str] = "attention_mask"  # the model's name for the mask of regions
    takes_only_images: ClassVar[bool] = False

    processor: Any
    config: Any
    text: str = ""  # text of inputs without one
    with_maps: bool = False
    attention_side: int | None = None  # longest side of attention maps

    def try_to_read(self, source: Any, index: int | None = None) -> Item:
        """Reads an input; an error, also one from reading a dataset, is kept in the item."""
        if isinstance(source, Item):  # the caller has read it already, so as not to keep the image
            return source
        name = "the image" if index is None else f"image {index}"
        try:
            if isinstance(source, Exception):
                raise source
            return self.read(source, name)
        except Exception as error:  # image processors and datasets raise many types
            is_named = isinstance(error, ValueError) and name[1:] in str(error)
            unread = ImageError(f"{name.capitalize()} cannot be read: {one_sentence(error)}.")
            return Item(name, error=error if is_named else unread)

    def read(self, source: Any, name: str) -> Item:
        row = source if isinstance(source, Mapping) else {"image": source}
        if {"bytes", "path"} & row.keys() and not {"image", "visual_features", *CLIPS} & row.keys():
            row = {"image": source}  # an undecoded image of `datasets`
        item = Item(name, text=self.text_of(row, name))
        vision = getattr(self.config, "vision_config", None)
        takes_images = self.takes_only_images or vision is not None
        if row.get("visual_features") is not None:
            self.read_features(item, row)
        elif getattr(vision, "kind", None) == "frames" and any(row.get(key) is not None for key in ("image", *CLIPS)):
            self.read_clip(item, row)
        elif takes_images and row.get("image") is not None:
            self.read_image(item, row)
        elif not takes_images:
            raise ValueError(
                f"This model cannot read {name}: it needs visual_features and visual_boxes, as in a dataset of "
                "features (--data), instead of images; hf-ngsan attach-vision adds a vision encoder."
            )
        else:
            got = f"a mapping with {sorted(source)}" if isinstance(source, Mapping) else type(source).__name__
            raise ValueError(f"This model accepts images, or mappings with visual_features; {name} is {got}.")
        return item

    def text_of(self, source: Mapping, name: str) -> str:
        text = self.text if source.get("text") is None else source["text"]
        self.check_prefix(text, f"The text of {name}")
        return text

    def check_prefix(self, text: Any, name: str) -> None:
        """Raises a ValueError if the beginning of a caption has unknown words or is too long for the captioner."""
        check_text(text, name)
        longest = getattr(self.config.get_text_config(decoder=True), "max_position_embeddings", None)
        if longest and self.number_of_words(text) >= longest:  # the start token is an additional one
            raise ValueError(f"{name} is too long: this captioner can continue at most {longest - 1} words.")
        unknown = self.processor.unknown_words(text) if hasattr(self.processor, "unknown_words") else ()
        if unknown:
            shown = ", ".join(f"{word!r:.40}" for word in unknown[:5])
            raise ValueError(f"{name} has words outside of the captioner's vocabulary: {shown}.")

    def number_of_words(self, text: str) -> int:
        with TOKENIZING:
            return len(self.processor.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])

    def read_features(self, item: Item, source: Mapping) -> None:
        item.features = checked_array(source["visual_features"], f"visual_features of {item.name}")
        expected = self.config.visual_feature_size
        if item.features.shape[1] != expected:
            size = f"have the dimension {item.features.shape[1]}; this model has visual_feature_size={expected}"
            raise ValueError(f"visual_features of {item.name} {size}.")
        if source.get("visual_boxes") is not None:
            item.boxes = checked_array(source["visual_boxes"], f"visual_boxes of {item.name}")
            check_image_boxes(item.boxes, len(item.features), item.name)
        elif getattr(self.config, "needs_boxes", False):
            raise ValueError(f"visual_boxes are missing for {item.name}; this model needs geometry.")
        if self.with_maps and source.get("image") is not None:
            self.prepare_maps(item, load_image(source["image"], item.name))

    def read_clip(self, item: Item, source: Mapping) -> None:
        frames = [load_image(frame, item.name) for frame in self.processor.read_clip(source)]
        item.pixels = self.processor.clips([frames])
        if self.with_maps:
            for frame in frames:
                frame.thumbnail((FRAME_SIDE, FRAME_SIDE))
            item.frames = frames

    def read_image(self, item: Item, source: Mapping) -> None:
        image_processor = self.processor.image_processor
        least_side = None if self.with_maps else least_side_of(image_processor)
        image = load_image(source["image"], item.name, least_side)
        if (boxes := source.get("boxes")) is not None:
            width, height = image.info.get("full size", image.size)
            if isinstance(boxes, ImageBoxes):
                item.boxes = boxes.fitted(width, height, item.name).corners
            else:
                item.boxes = boxes_in_shares(boxes, width, height, item.name)
        elif source.get("visual_boxes") is not None:
            item.boxes = checked_array(source["visual_boxes"], f"visual_boxes of {item.name}")
            check_image_boxes(item.boxes, len(item.boxes), item.name)
        if self.with_maps:
            self.prepare_maps(item, image)
        if self.with_maps or item.boxes is not None:
            check_whole_images(image_processor)
        item.pixels = image_processor(image, return_tensors="pt")

    def prepare_maps(self, item: Item, image: Image.Image) -> None:
        item.size = image.size
        if self.attention_side is not None:
            item.image = image.copy()
            item.image.thumbnail((self.attention_side, self.attention_side))
            item.size = item.image.size

    def stream(self, inputs: Iterable, batch_size: int) -> Iterator[Batch]:
        """Reads the inputs of an iterator, no more than one batch at a time."""
        items = (self.try_to_read(source, index) for index, source in enumerate(inputs))
        while batch := list(islice(items, batch_size)):
            yield self.collate(batch)

    def collate(self, items: list[Item]) -> Batch:
        """Makes model inputs from the items that could be read."""
        groups = [*self.grouped([item for item in items if item.error is None])]
        for item in items:
            item.pixels = item.features = None  # workers do not need to send them
        return Batch(items, groups)

    def grouped(self, items: list[Item]) -> Iterator[tuple[list[Item], BatchFeature]]:
        """Yields the items of each kind, and their model inputs."""
        kinds: dict[tuple[bool, bool], list[Item]] = {}
        for item in items:
            kinds.setdefault((item.pixels is None, item.boxes is None), []).append(item)
        for same_kind in kinds.values():
            yield same_kind, self.model_inputs(same_kind)

    def model_inputs(self, items: list[Item]) -> BatchFeature:
        text = [item.text for item in items]
        boxes: Any = None if items[0].boxes is None else [item.boxes for item in items]
        if items[0].pixels is None:
            return self.processor(visual_features=[item.features for item in items], visual_boxes=boxes, text=text)
        inputs = self.processor(text=text)
        inputs.update(pad_pixels([item.pixels for item in items]))
        if boxes is not None:
            padded = pad_visual_inputs(visual_boxes=boxes)
            inputs.update({self.mask_name if name == "attention_mask" else name: padded[name] for name in padded})
        return inputs


class QuestionReader(ItemReader):
    """Reads inputs with a question; `text` is the question for inputs without one."""

    mask_name = "visual_attention_mask"

    def text_of(self, source: Mapping, name: str) -> str:
        question = source.get("question") or self.text
        check_text(question, f"The question about {name}")
        if self.number_of_words(question) == 0:
            raise ValueError(f"The question about {name} has no words: {question!r:.60}; give question=...")
        return question


@dataclass
class GuestReader(ItemReader):
    """Reads images, and processes each of them separately, because processors differ in how they make batches."""

    takes_only_images = True

    guest: Any = None

    def read_image(self, item: Item, source: Mapping) -> None:
        item.pixels = self.guest.inputs(load_image(source["image"], item.name), item.text)

    def grouped(self, items: list[Item]) -> Iterator[tuple[list[Item], BatchFeature]]:
        for places, inputs in batches(item.pixels for item in items):
            yield [items[place] for place in places], inputs


def check_text(text: Any, name: str) -> None:
    if not isinstance(text, str):
        raise ValueError(f"{name} is {type(text).__name__}, not a string.")
    text.encode()  # a lone surrogate is a ValueError; no tokenizer can read it


def pad_pixels(images: Sequence[Mapping[str, torch.Tensor]]) -> dict[str, torch.Tensor]:
    """Joins `pixel_values` `(1, C, height, width)` of images, padded with 0; adds `pixel_mask` `(B, height, width)`."""
    pixels = [image["pixel_values"] for image in images]
    if pixels[0].ndim == 5:  # clips `(1, T, C, height, width)`
        return pad_clips([clip[0] for clip in pixels])
    if len({image.shape for image in pixels}) == 1 and not any("pixel_mask" in image for image in images):
        return {"pixel_values": torch.cat(pixels)}
    full_masks = [torch.ones(1, *image.shape[-2:], dtype=torch.long) for image in pixels]
    masks = [image.get("pixel_mask", mask) for image, mask in zip(images, full_masks, strict=True)]
    height, width = (max(image.shape[axis] for image in pixels) for axis in (-2, -1))

    def padded(parts: Sequence[torch.Tensor]) -> torch.Tensor:
        missing = [(0, width - part.shape[-1], 0, height - part.shape[-2]) for part in parts]
        return torch.cat([torch.nn.functional.pad(part, pad) for part, pad in zip(parts, missing, strict=True)])

    return {"pixel_values": padded(pixels), "pixel_mask": padded(masks)}


class Items(Dataset):
    """A dataset of items from indexed inputs, for several workers."""

    def __init__(self, inputs: Any, reader: ItemReader) -> None:
        self.inputs, self.reader = inputs, reader

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> Item:
        try:
            source = self.inputs[index]
        except Exception as error:  # a dataset may decode an image here
            source = error
        return self.reader.try_to_read(source, index)


def streamable(inputs: Any) -> Any:
    """Returns inputs in a form that pipelines distinguish: one input, a list, a generator or a torch dataset.

    Only sequences and datasets are indexed; other collections, such as a pandas series, are iterated once.
    """
    if isinstance(inputs, (np.ndarray, torch.Tensor)):
        return list(inputs) if inputs.ndim == 4 else inputs
    lone = (str, bytes, bytearray, memoryview, os.PathLike, Mapping, Image.Image, Dataset)
    if isinstance(inputs, lone) or hasattr(inputs, "read") or not isinstance(inputs, Iterable):
        return inputs
    has_length: bool = isinstance(inputs, Sized)
    if not has_length:
        return (source for source in inputs)
    is_indexed = isinstance(inputs, Sequence) or hasattr(inputs, "column_names")
    as_dataset = is_indexed and not isinstance(inputs, list | tuple)
    return Subset(inputs, range(len(inputs))) if as_dataset else list(inputs)  # type: ignore[arg-type]


class ItemPipeline(ImageToTextPipeline):
    """A pipeline that reads, collates and answers its inputs as items; some items may have failed."""

    text_key: ClassVar[str] = "generated_text"  # key of an answer; its value is None for a skipped input
    text_argument: ClassVar[str] = "text"
    reader_class: ClassVar[type[ItemReader]] = ItemReader

    def __call__(self, inputs: Any = None, images: Any = None, **kwargs: Any) -> Any:  # type: ignore[override]
        if inputs is not None and images is not None:
            raise ValueError("Inputs are passed twice: as the first argument and as image or images; pass them once.")
        inputs = streamable(images if inputs is None else inputs)
        return [] if isinstance(inputs, list) and not inputs else Pipeline.__call__(self, inputs, **kwargs)

    def _sanitize_parameters(self, generate_kwargs: dict | None = None, **kwargs: Any) -> tuple[dict, dict, dict]:  # type: ignore[override]
        names = {self.text_argument: "text", "return_attention": "with_maps", "attention_side": "attention_side"}
        reading = {names[name]: value for name, value in kwargs.items() if name in names and value is not None}
        options = {name: value for name, value in kwargs.items() if name not in (self.text_argument, "attention_side")}
        return reading, {**(generate_kwargs or {}), **options}, {}

    def reader(self, **preprocess_params: Any) -> ItemReader:
        return self.reader_class(self.processor, self.model.config, **preprocess_params)

    @abstractmethod
    def answer(self, items: list[Item], inputs: BatchFeature, **options: Any) -> list[dict]:
        """Returns the answers of items with the same kinds of inputs; each item has the same number of answers."""

    def _forward(self, batch: Batch, on_error: str = "raise", **options: Any) -> list[Item]:  # type: ignore[override]
        check_choice("on_error", on_error, ("raise", "skip"))
        for item in batch.items:
            if item.error is not None and on_error == "raise":
                raise item.error
            item.answers = [{self.text_key: None, "error": str(item.error)}]
        for items, inputs in batch.groups:
            answers = self.answer(items, inputs, **options)
            each = len(answers) // len(items)
            for row, item in enumerate(items):
                item.answers = answers[row * each : (row + 1) * each]
        return batch.items

    def with_visual_tokens(self, inputs: BatchFeature) -> tuple[BatchFeature, dict[str, Any]]:
        """Replaces pixels by visual tokens, computed once for answers and attention; also returns the pixels.

        Members of an ensemble compute their tokens themselves.
        """
        if "pixel_values" not in inputs or not hasattr(self.model, "model"):
            return inputs, {}
        mask = self.reader_class.mask_name
        pixels = {name: inputs[name] for name in PIXELS if name in inputs}
        regions = {name: inputs[name] for name in ("visual_boxes", mask) if name in inputs}
        tokens = dict(self.model.model.get_visual_tokens(**pixels, **regions))
        tokens[mask] = tokens.pop("attention_mask")
        rest = {name: value for name, value in inputs.items() if name not in pixels | regions}
        return BatchFeature(rest | tokens), pixels

    def place_maps(self, items: list[Item], inputs: BatchFeature) -> None:
        """Sets the boxes of items with attention maps to those of their real regions, and removes other boxes."""
        for row, item in enumerate(items):
            item.boxes = None
            if item.size is not None and inputs.get("visual_boxes") is not None:
                is_real = inputs[self.reader_class.mask_name][row].bool()
                item.boxes = inputs["visual_boxes"][row][is_real].float().cpu().numpy()

    def postprocess(self, item: Item, **postprocess_parameters: Any) -> list[dict]:  # type: ignore[override]
        """Turns attention weights into maps, one input at a time in the calling process, because maps are large."""
        if item.frames is not None:
            return [{**answer, "frames": item.frames} for answer in item.answers]
        answers = [{**answer} for answer in item.answers]
        if item.size is None or item.boxes is None:
            return answers
        for answer in answers:
            for name in {"attention", "answer_attention"} & answer.keys():
                maps = attention_maps(np.atleast_2d(answer[name]), item.boxes, *item.size)
                answer[name] = maps if answer[name].ndim == 2 else maps[0]
            if "attention" in answer and item.image is not None:
                answer["image"] = item.image
        return answers

    def run_single(self, inputs: Any, preprocess: dict, forward: dict, postprocess: dict) -> list[dict]:
        reader = self.reader(**preprocess)
        [item] = self.forward(reader.collate([reader.try_to_read(inputs)]), **forward)
        return self.postprocess(item, **postprocess)

    def get_iterator(
        self, inputs: Any, num_workers: int, batch_size: int, preprocess: dict, forward: dict, postprocess: dict
    ) -> Iterator[list[dict]]:
        reader = self.reader(**preprocess)
        batches: Iterable[Batch] = reader.stream(inputs, batch_size)
        if isinstance(inputs, Sized):
            batches = DataLoader(Items(inputs, reader), batch_size, num_workers=num_workers, collate_fn=reader.collate)
        for batch in batches:
            for item in self.forward(batch, **forward):
                yield self.postprocess(item, **postprocess)
