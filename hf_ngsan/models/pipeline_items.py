"""Inputs of the image-to-text pipeline: read one by one and put together to batches, in any worker of a loader."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch.utils.data import Dataset, IterableDataset
from transformers.feature_extraction_utils import BatchFeature

from .images import ImageError, load_image, reason, titled
from .visual_inputs import as_array, boxes_of_regions, check_boxes, check_features, check_regions


@dataclass
class Item:
    """One input, read.

    Attributes:
        name: what to call it in errors.
        image: the upright image, for models with a vision part.
        size: width and height of the image, where there is one.
        features: `(num_regions, visual_feature_size)`, in place of an image.
        boxes: `(num_regions, 4)` within [0, 1].
        text: what its caption shall begin with.
        error: why it could not be read.
    """

    name: str
    image: object = None
    size: tuple[int, int] | None = None
    features: np.ndarray | None = None
    boxes: np.ndarray | None = None
    text: str = ""
    error: Exception | None = None


@dataclass
class Batch:
    """Items with the model inputs of those that could be read, in groups that have the same kinds of inputs."""

    items: list[Item]
    groups: list[tuple[list[int], BatchFeature]]


@dataclass
class ItemReader:
    """Reads inputs; holds no model, so that it is easily sent to workers.

    Args:
        processor (`CaptioningProcessor`): the model's.
        config (`PreTrainedConfig`): the model's.
        text: what captions shall begin with, unless an input has a text of its own.
        needs_size: whether the size of an image is wanted that accompanies features.
    """

    processor: object
    config: object
    text: str = ""
    needs_size: bool = False

    def try_to_read(self, get: Callable[[], object], name: str) -> Item:
        """Read an input; one that cannot be read says why. `get` itself may decode an image, and fail."""
        try:
            return self.read(get(), name)
        except ValueError as error:
            return Item(name, error=error)
        except OSError as error:  # of a data set that decodes its images itself
            return Item(name, error=ImageError(f"{titled(name)} cannot be read: {reason(error)}"))

    def read(self, source, name: str) -> Item:
        """Read an input.

        Raises:
            ValueError: what is no image, or features, boxes or a text that do not fit; names the input.
        """
        if isinstance(source, Mapping):
            given = f"a mapping with {sorted(map(str, source))}"
            is_file = not {"image", "visual_features"} & set(source) and {"bytes", "path"} & set(source)
            source = {"image": source} if is_file else source  # an image of `datasets` that is not decoded
        else:
            given, source = type(source).__name__, {"image": source}
        text = source.get("text")
        item = Item(name, text=self.text if text is None else text)
        if not isinstance(item.text, str):
            raise ValueError(f"The text of {name} is {type(item.text).__name__}, not a string.")
        if source.get("visual_features") is not None:
            self.read_features(item, source)
        elif self.takes_images and source.get("image") is not None:
            self.read_image(item, source)
        else:
            features = "visual_features (num_regions, visual_feature_size) and visual_boxes (num_regions, 4)"
            wanted = f"an image, a mapping with image, or one with {features}"
            raise ValueError(
                f"This captioner takes {wanted if self.takes_images else 'a mapping with ' + features}; for {name} it "
                f"got {given}."
            )
        return item

    @property
    def takes_images(self) -> bool:
        return getattr(self.config, "vision_config", None) is not None

    def read_features(self, item: Item, source: Mapping):
        item.features = as_array(source["visual_features"], f"visual_features of {item.name}")
        check_features(item.features, item.name)
        width = self.config.visual_feature_size
        if item.features.shape[1] != width:
            raise ValueError(
                f"visual_features of {item.name} are {item.features.shape[1]} wide; this captioner has "
                f"visual_feature_size={width}."
            )
        if source.get("visual_boxes") is not None:
            item.boxes = as_array(source["visual_boxes"], f"visual_boxes of {item.name}")
            check_boxes(item.boxes, len(item.features), item.name)
        elif getattr(self.config, "needs_boxes", False):
            raise ValueError(f"visual_boxes are missing for {item.name}; this captioner cannot do without geometry.")
        if self.needs_size and source.get("image") is not None:
            item.size = load_image(source["image"], item.name).size

    def read_image(self, item: Item, source: Mapping):
        if self.processor.image_processor is None:
            raise ValueError(
                "This captioner takes images, but its processor has no image processor; make the processor with "
                "image_processor=CaptioningImageProcessor()."
            )
        item.image = load_image(source["image"], item.name)
        item.size = item.image.size
        if source.get("regions") is not None:
            item.boxes = boxes_of_regions(source["regions"], *item.size, item.name)
        elif source.get("visual_boxes") is not None:
            item.boxes = as_array(source["visual_boxes"], f"visual_boxes of {item.name}")
            check_regions(item.boxes, f"visual_boxes of {item.name}")
            check_boxes(item.boxes, len(item.boxes), item.name)

    def collate(self, items: list[Item]) -> Batch:
        """Inputs of a model, for those items that could be read."""
        kinds = {}
        for position, item in enumerate(items):
            if item.error is None:
                kinds.setdefault((item.image is None, item.boxes is None), []).append(position)
        groups = [(positions, self.model_inputs([items[at] for at in positions])) for positions in kinds.values()]
        for item in items:
            item.image = item.features = None  # workers need not send them
        return Batch(items, groups)

    def model_inputs(self, items: list[Item]) -> BatchFeature:
        visual = {}
        if items[0].image is not None:
            visual["images"] = [item.image for item in items]
        else:
            visual["visual_features"] = [item.features for item in items]
        if items[0].boxes is not None:
            visual["visual_boxes"] = [item.boxes for item in items]
        return self.processor(**visual, text=[item.text for item in items])


class Items(Dataset):
    """Inputs that have numbers; several workers can share them."""

    def __init__(self, inputs: Sequence, reader: ItemReader):
        self.inputs, self.reader = inputs, reader

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int) -> Item:
        return self.reader.try_to_read(lambda: self.inputs[index], f"image {index}")


class ItemStream(IterableDataset):
    """Inputs that come one after the other."""

    def __init__(self, inputs: Iterable, reader: ItemReader):
        self.inputs, self.reader = inputs, reader

    def __iter__(self):
        for index, source in enumerate(self.inputs):
            yield self.reader.try_to_read(lambda source=source: source, f"image {index}")


class Inputs(Dataset):
    """A column or data set of another library, as one of torch, which a pipeline streams."""

    def __init__(self, inputs: Sequence):
        self.inputs = inputs

    def __len__(self) -> int:
        return len(self.inputs)

    def __getitem__(self, index: int):
        return self.inputs[index]


def streamable(inputs):
    """Inputs as a pipeline tells them apart: a lone input, a list, a generator or a data set of torch."""
    if isinstance(inputs, (np.ndarray, torch.Tensor)):
        return list(inputs) if inputs.ndim == 4 else inputs
    lone = (Mapping, str, bytes, bytearray, memoryview)
    if isinstance(inputs, (*lone, list, Dataset)) or not isinstance(inputs, Iterable):
        return inputs
    if hasattr(inputs, "__len__") and hasattr(inputs, "__getitem__"):
        return Inputs(inputs)
    return (entry for entry in inputs)
