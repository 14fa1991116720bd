"""Processor of the captioners: images or visual features, boxes, captions and prefixes become model inputs.

```python
processor(images=["photo.jpg"], text=["a dog"])  # pixel_values, decoder_input_ids, ..., labels
processor(visual_features=[features], visual_boxes=[boxes], captions=[["a dog runs"]])  # ..., labels
```
"""

import contextlib
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.nn import functional
from transformers.feature_extraction_utils import BatchFeature
from transformers.processing_utils import ProcessorMixin
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from .configuration_hub import HubProcessorMixin
from .image_processing_captioning import CaptioningImageProcessor, check_whole_images
from .images import load_images
from .visual_inputs import Arrays, as_arrays, boxes_of_regions, pad_visual_inputs

# A tokenizer keeps the settings of its last call, such as padding, so threads take turns. A fork, to read images,
# waits for its turn too: a child of a process with the lock held would find it locked forever.
TOKENIZING = threading.Lock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=TOKENIZING.acquire, after_in_parent=TOKENIZING.release, after_in_child=TOKENIZING.release
    )


class PartsAtHand:
    """`get_attributes`: on the class all possible parts of a processor, on a processor the parts that it has."""

    def __get__(self, processor: ProcessorMixin | None, cls: type) -> Callable[[], list[str]]:
        names = super(CaptioningProcessor, cls).get_attributes()  # type: ignore[misc]  # a class that inherits from it
        if processor is not None:
            names = [name for name in names if getattr(processor, name, self) is not None]
        return lambda: names


def check_text(text: Any, name: str) -> None:
    """Raises a ValueError unless this is a string without lone surrogates, which no tokenizer can read."""
    if not isinstance(text, str):
        raise ValueError(f"{name} is {type(text).__name__}, not a string.")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(
            f"{name} has half of a character ({text[error.start]!r}, a lone surrogate) at position {error.start}; give "
            "text that was decoded as UTF-8."
        ) from None


def list_of_texts(text: Any) -> list[str]:
    """Returns one text or several as a list; raises a ValueError unless a tokenizer can read each."""
    if not isinstance(text, (str, list, tuple)):
        raise ValueError(f"text is {type(text).__name__}; it must be a string or a list of strings.")
    texts = [text] if isinstance(text, str) else list(text)
    for index, one in enumerate(texts):
        check_text(one, text_name(index, texts))
    return texts


def text_name(index: int, texts: list[str]) -> str:
    """Returns the name of a text in errors."""
    return "The text" if len(texts) == 1 else f"Text {index} of the batch"


def batch_of(data: dict[str, Any], return_tensors: str) -> BatchFeature:
    """Returns the inputs of a model as tensors, or with `return_tensors="np"` as arrays."""
    if not data:
        raise ValueError("Nothing to process: give images, visual_features or text.")
    return BatchFeature({name: np.asarray(value) for name, value in data.items()} if return_tensors == "np" else data)


class CaptioningProcessor(HubProcessorMixin, ProcessorMixin):
    """Turns images into pixels, pads visual features and boxes, tokenizes training captions and prefixes.

    Args:
        image_processor (`BaseImageProcessor`, *optional*): for models with a vision encoder;
            a [`CaptioningImageProcessor`] or that of the backbone.
        tokenizer (`PreTrainedTokenizerFast`): word-level tokenizer with pad, start, end and unknown tokens.
    """

    text_kwargs = {
        "add_special_tokens": False,
        "return_token_type_ids": False,
        "padding": True,
        "padding_side": "left",
    }
    get_attributes = PartsAtHand()

    def __init__(self, image_processor: Any = None, tokenizer: PreTrainedTokenizerBase | None = None, **kwargs: Any):
        if tokenizer is None and isinstance(image_processor, PreTrainedTokenizerBase):
            image_processor, tokenizer = None, image_processor  # a tokenizer alone
        if tokenizer is not None and tokenizer._auto_class is None and tokenizer.init_kwargs.pop("auto_map", None):
            self._auto_class = "AutoProcessor"  # of a checkpoint with code: saving writes its code again
        if image_processor is None:
            self.image_processor = None
            super().__init__(tokenizer=tokenizer, **kwargs)
        else:
            super().__init__(image_processor, tokenizer, **kwargs)

    def __call__(
        self,
        images: Any = None,
        text: str | list[str] | None = None,
        visual_features: Arrays | None = None,
        visual_boxes: Arrays | None = None,
        captions: str | Sequence[str | None] | Sequence[Sequence[str | None]] | None = None,
        regions: Arrays | None = None,
        **kwargs: Any,
    ) -> BatchFeature:
        r"""
        Args:
            images (*optional*): one image or several: paths, URLs, bytes, images of Pillow, arrays or tensors, as
                [`images.load_image`] reads them.
            text (`str` or `list[str]`, *optional*): a caption of each image, for the loss of a model, or its beginning,
                for `generate()`, which ignores the labels; `""` for none.
            visual_features (`Sequence` of arrays `(num_regions, visual_feature_size)`, *optional*): in place of images;
                one array an image, or a single array for one image.
            visual_boxes (`Sequence` of arrays `(num_regions, 4)`, *optional*): `x1, y1, x2, y2` within [0, 1]; one
                array an image, or a single array for one image.
            captions (`str`, `list[str]` or `list[list[str]]`, *optional*): training captions: one an image, or C an
                image (the same C for all). `None` or `""` is a row without any label. Beside them `text` is the
                beginning for `generate()` alone and makes no labels.
            regions (`Sequence` of arrays `(num_regions, 4)`, *optional*): `x1, y1, x2, y2` in pixels of the upright
                image, one array an image, or a single array for one image: the same boxes as `visual_boxes`, of images.
            kwargs: passed to the tokenizer, for `text`, and to the image processor, for `images`.

        Returns:
            `BatchFeature` of tensors, or of arrays with `return_tensors="np"`. From images `pixel_values` `(B, 3,
            height, width)` float32 and, where images of a batch differ in size, `pixel_mask` `(B, height, width)`; from
            features `visual_features` `(B, N, D)` float32 and `attention_mask` `(B, N)` with 1 = real; from boxes
            `visual_boxes` `(B, N, 4)` and, where images have unequal numbers of them, `attention_mask`; from captions
            `labels` `(B * C, T)`; from text `decoder_input_ids`, with the start token, `decoder_attention_mask` and
            `labels`, `(B, T)`, padded on the left. Labels have no start token, the end token, and -100 at padding.

        Raises:
            ValueError: no image, arrays of the wrong shape, number or content, boxes outside their image,
                captions or text that do not fit; names the image. Also boxes of images from which the image processor
                cuts something.
        """
        if images is not None and visual_features is not None:
            raise ValueError("Give images or visual_features, not both: features stand in for images.")
        if visual_boxes is not None and regions is not None:
            raise ValueError("Give visual_boxes (within [0, 1]) or regions (in pixels), not both.")
        if visual_boxes is not None and images is None and visual_features is None:
            raise ValueError("visual_boxes were given without visual_features or images.")
        if regions is not None and images is None:
            raise ValueError(
                "regions are boxes in pixels of images, and no images were given; with visual_features, divide by the "
                "image's size and give visual_boxes."
            )
        data, num_images, given = {}, None, ""
        if visual_features is not None:
            data.update(pad_visual_inputs(visual_features, visual_boxes))
            num_images = len(data["visual_features"])
            given = f"visual_features of {num_images} images"
        if images is not None:
            images = self.read_images(images)
            num_images = len(images)
            given = f"{num_images} images"
            if regions is not None:
                visual_boxes = self.boxes_of_images(regions, images)
            if visual_boxes is not None:
                check_whole_images(self.image_processor, {**kwargs, **kwargs.get("images_kwargs", {})})
                data.update(pad_visual_inputs(visual_boxes=visual_boxes))
                if len(data["visual_boxes"]) != num_images:
                    raise ValueError(f"There are {num_images} images but visual_boxes of {len(data['visual_boxes'])}.")
        if captions is not None:
            captions = [captions] if isinstance(captions, str) else captions
            if num_images not in (None, len(captions)):
                raise ValueError(f"There are {given} but captions of {len(captions)}.")
            data["labels"] = self.caption_labels(captions)
        if text is not None:
            text = self.prefixes(text)
            if num_images not in (None, len(text)):
                raise ValueError(f"There are {given} but text for {len(text)}.")
        kwargs.setdefault("return_tensors", "pt")
        if images is not None:
            data.update(super().__call__(images=images, **kwargs))
        if text is not None:
            with TOKENIZING:
                encoded = super().__call__(text=text, **kwargs)
            names = {"input_ids": "decoder_input_ids", "attention_mask": "decoder_attention_mask"}
            data.update({names.get(name, name): value for name, value in encoded.items()})
            if captions is None:
                data["labels"] = self.labels_of(encoded["input_ids"], encoded.get("attention_mask"))
        return batch_of(data, kwargs["return_tensors"])

    def read_images(self, images: Any) -> list[Image.Image]:
        """Reads images; raises a ValueError without an image processor, or for something else than images."""
        if self.image_processor is None:
            raise ValueError(
                "This processor has no image processor and takes visual_features, not images; for a model with a "
                "vision encoder make it with image_processor=CaptioningImageProcessor()."
            )
        read = load_images(images)
        if not read:
            raise ValueError("images is empty: give at least one image.")
        return read

    def boxes_of_images(self, regions: Arrays, images: list[Image.Image]) -> list[np.ndarray]:
        """Turns regions in pixels of images of Pillow into boxes within [0, 1]."""
        regions = as_arrays(regions, "regions")
        if len(regions) != len(images):
            raise ValueError(f"There are {len(images)} images but regions of {len(regions)}.")
        return [
            boxes_of_regions(boxes, image.width, image.height, f"image {index}")
            for index, (boxes, image) in enumerate(zip(regions, images, strict=True))
        ]

    def unknown_words(self, text: str) -> list[str]:
        """Returns the words of a text without a token, and special tokens, which are no words."""
        return self.words_of(text)[1]

    def words_of(self, text: str) -> tuple[list[int], list[str]]:
        """Returns the ids of a text's tokens, and its words that are unknown or special tokens."""
        if not text:
            return [], []
        with TOKENIZING:
            encoded = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
            no_words = set(self.tokenizer.all_special_ids)  # that for unknown words is one
        ids = encoded["input_ids"]
        pairs = zip(ids, encoded["offset_mapping"], strict=True)
        return ids, [text[start:end] for token, (start, end) in pairs if token in no_words]

    def prefixes(self, text: str | Sequence[str]) -> list[str]:
        """Puts the start token in front of prefixes."""
        return [f"{self.tokenizer.bos_token} {prefix}".strip() for prefix in list_of_texts(text)]

    def caption_labels(self, captions: Sequence[str | None] | Sequence[Sequence[str | None]]) -> torch.Tensor:
        """Turns captions into labels `(B * C, T)`: words, the end token, then -100."""
        rows = [row if isinstance(row, (list, tuple)) else [row] for row in captions]
        if len({len(row) for row in rows}) > 1:
            raise ValueError("Every image of a batch needs the same number of captions; fill up with None.")
        flat = [caption for row in rows for caption in row]
        for index, caption in enumerate(flat):
            if caption is not None:
                check_text(caption, f"Caption {index} of the batch")
        with TOKENIZING:
            words = self.tokenizer([caption or "" for caption in flat], add_special_tokens=False)["input_ids"]
        labels = [[*ids, self.tokenizer.eos_token_id] if ids else [] for ids in words]
        width = max(1, max(map(len, labels), default=1))
        return torch.tensor([ids + [-100] * (width - len(ids)) for ids in labels], dtype=torch.long).reshape(-1, width)

    def labels_of(self, input_ids: Any, attention_mask: Any) -> torch.Tensor:
        """Returns the token after each of `input_ids` `(B, T)`, the end token after the last; -100 at padding and in
        rows without words."""
        tokens = torch.as_tensor(input_ids)
        pad, end = self.tokenizer.pad_token_id, self.tokenizer.eos_token_id
        real = tokens != pad if attention_mask is None else torch.as_tensor(attention_mask) == 1
        is_before_word = functional.pad(real[:, 1:], (0, 1))
        labels = functional.pad(tokens[:, 1:], (0, 1)).where(is_before_word, end)
        return labels.masked_fill(~real | (real.sum(1, keepdim=True) < 2), -100)

    @property
    def model_input_names(self) -> list[str]:
        pixels = [] if self.image_processor is None else self.image_processor.model_input_names
        features = ["visual_features", "visual_boxes", "attention_mask"]
        return [*pixels, *features, "decoder_input_ids", "decoder_attention_mask", "labels"]

    def to_dict(self) -> dict:
        output = super().to_dict()
        if self._auto_class is None:
            output.pop("auto_map", None)
        saved = output.get("image_processor")
        if saved is None:
            output.pop("image_processor", None)
        else:
            # Saving with code leaves the processor's own entry here; the image processor needs one of its own, and
            # whatever else is there came with a checkpoint.
            auto_map, own = saved.pop("auto_map", None), getattr(self.image_processor, "_auto_class", None)
            if isinstance(self.image_processor, CaptioningImageProcessor) and self._auto_class is not None:
                saved["auto_map"] = {"AutoImageProcessor": "image_processing_captioning.CaptioningImageProcessor"}
            elif isinstance(auto_map, Mapping) and own in auto_map:
                saved["auto_map"] = {own: auto_map[own]}
        return output

    @classmethod
    def _get_arguments_from_pretrained(
        cls, pretrained_model_name_or_path: str | PathLike, processor_dict: dict | None = None, **kwargs: Any
    ) -> list:
        saved = (processor_dict or {}).get("image_processor")
        if saved is None:  # or in a file of its own
            with contextlib.suppress(OSError):
                saved, _ = CaptioningImageProcessor.get_image_processor_dict(pretrained_model_name_or_path, **kwargs)
        if saved is not None and saved.get("image_processor_type") != CaptioningImageProcessor.__name__:
            return super()._get_arguments_from_pretrained(pretrained_model_name_or_path, processor_dict, **kwargs)
        tokenizer = cls._load_tokenizer_from_pretrained("tokenizer", pretrained_model_name_or_path, **kwargs)
        if saved is None:
            return [None, tokenizer]
        return [CaptioningImageProcessor.from_pretrained(pretrained_model_name_or_path, **kwargs), tokenizer]


__all__ = ["CaptioningProcessor"]
