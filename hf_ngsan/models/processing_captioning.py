"""Processor of captioners: converts images or visual features, boxes, captions and prefixes to model inputs."""

import os
import threading
from collections.abc import Mapping, Sequence
from functools import partial
from os import PathLike
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence
from transformers import AutoImageProcessor
from transformers.dynamic_module_utils import custom_object_save
from transformers.feature_extraction_utils import BatchFeature
from transformers.processing_utils import ProcessorMixin
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from .configuration_hub import from_part

# A tokenizer keeps the settings of its last call, such as padding, so threads use it one after another. A fork also
# acquires the lock: otherwise a child process could start with a lock that is never released.
TOKENIZING = threading.Lock()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=TOKENIZING.acquire, after_in_parent=TOKENIZING.release, after_in_child=TOKENIZING.release
    )

Arrays = Sequence[np.ndarray | torch.Tensor] | np.ndarray | torch.Tensor
BOX_TOLERANCE = 1e-3  # boxes may exceed [0, 1] by this, because detectors in half precision round them
CLIP_KEYS = ("frames", "video", "image", "bytes", "path")  # keys of rows, and of files in `datasets`
IMAGE_PROCESSOR = "CaptioningImageProcessor"
CONVNEXT_UNCUT = 384  # a ConvNextImageProcessor crops images only if the shortest edge is smaller


class CaptioningProcessor(ProcessorMixin):
    """Converts images to pixels, pads visual features and boxes, and tokenizes training captions and prefixes.

    ```python
    processor(images=["photo.jpg"], text=["a dog"])  # pixel_values, decoder_input_ids, ..., labels
    processor(visual_features=[features], visual_boxes=[boxes], captions=[["a dog runs"]])  # ..., labels
    ```

    Args:
        image_processor (`BaseImageProcessor`, *optional*): for models with a vision encoder;
            a [`CaptioningImageProcessor`], whose defaults match VGG-11, or the image processor of the backbone.
        tokenizer (`PreTrainedTokenizerFast`): word-level tokenizer with pad, start, end and unknown tokens.
    """

    text_kwargs = {"add_special_tokens": False, "return_token_type_ids": False, "padding": True, "padding_side": "left"}
    inputs_behind_boxes: tuple[str, ...] = ("attention_mask", "decoder_input_ids", "decoder_attention_mask", "labels")

    def __init__(self, image_processor: Any = None, tokenizer: PreTrainedTokenizerBase | None = None, **kwargs: Any):
        if tokenizer is None and isinstance(image_processor, PreTrainedTokenizerBase):
            image_processor, tokenizer = None, image_processor  # only a tokenizer
        if tokenizer is not None and tokenizer._auto_class is None and tokenizer.init_kwargs.pop("auto_map", None):
            self._auto_class = "AutoProcessor"  # from a checkpoint with code: saving writes it again
        if image_processor is None:
            self.image_processor = None
            self.get_attributes = partial(list, ["tokenizer"])  # type: ignore[method-assign]  # of this object
            super().__init__(tokenizer, **kwargs)
        else:
            super().__init__(image_processor, tokenizer, **kwargs)

    def __call__(
        self,
        images: Any = None,
        text: str | list[str] | None = None,
        visual_features: Arrays | None = None,
        visual_boxes: Arrays | None = None,
        captions: str | Sequence[str | None] | Sequence[Sequence[str | None]] | None = None,
        boxes: Arrays | None = None,
        videos: Sequence[Any] | None = None,
        **kwargs: Any,
    ) -> BatchFeature:
        r"""
        Args:
            images (*optional*): one or several images of any kind that `image_processing_captioning.load_image` reads.
            videos (*optional*): clips instead of images: lists of frames, or files that `videos.read_frames` reads.
            text (`str` or `list[str]`, *optional*): a caption per image for the loss of a model, or the beginning of
                one for `generate()`, which ignores the labels; `""` for none.
            visual_features (`Sequence` of arrays `(num_regions, visual_feature_size)`, *optional*): replace images.
            visual_boxes (`Sequence` of arrays `(num_regions, 4)`, *optional*): `x1, y1, x2, y2` within [0, 1].
            captions (`str`, `list[str]` or `list[list[str]]`, *optional*): one or C training captions per image, for
                the labels. `None` or `""` is a row without labels.
            boxes (`Sequence` of arrays `(num_regions, 4)`, *optional*): `x1, y1, x2, y2` in pixels of the upright
                image, as returned by transformers' `post_process_object_detection`. They are clipped to the image.
            kwargs: passed to the tokenizer, for `text`, and to the image processor, for `images`.

        Returns:
            `BatchFeature` of tensors, or of arrays with `return_tensors="np"`: the outputs of the image processor, with
            `pixel_values` `(B, T, 3, H, W)` for clips; `visual_features` `(B, N, D)`, `visual_boxes` `(B, N, 4)` and,
            for features or unequal numbers of boxes or frames, `attention_mask` `(B, N)`, 1 = real; from captions,
            `labels` `(B * C, T)`; from text, left-padded `decoder_input_ids` with the start token,
            `decoder_attention_mask` and `labels` `(B, T)`. Labels have no start token, an end token, -100 at padding.
        """
        if boxes is not None and (images is None or visual_boxes is not None):
            raise ValueError("boxes are in pixels of images: pass them with images, and without visual_boxes.")
        kwargs.setdefault("return_tensors", "pt")
        text = [text] if isinstance(text, str) else text
        captions = [captions] if isinstance(captions, str) else captions
        images = None if images is None else self.read_images(images)
        if boxes is not None:
            boxes = as_arrays(boxes, "boxes", may_be_empty=True)
            pairs = enumerate(zip(boxes, images, strict=False))
            visual_boxes = [boxes_in_shares(rows, im.width, im.height, f"image {place}") for place, (rows, im) in pairs]
        if images is not None and visual_boxes is not None:
            check_whole_images(self.image_processor, {**kwargs, **kwargs.get("images_kwargs", {})})
        data: dict[str, Any] = pad_visual_inputs(visual_features, visual_boxes)
        inputs = {"images": images, "boxes": boxes, "videos": videos, "captions": captions, "text": text, **data}
        numbers = {name: len(value) for name, value in inputs.items() if value is not None and name != "attention_mask"}
        if len(set(numbers.values())) != 1:
            raise ValueError(f"Inputs are missing, or have different numbers of images: {numbers}.")
        if images is not None:
            data |= super().__call__(images=images, **kwargs)
        if videos is not None:
            data |= self.clips(videos, **kwargs)
        if text is not None:
            data |= self.prefixes(text, **kwargs)
        if captions is not None:
            data["labels"] = self.caption_labels(captions)
        return BatchFeature(data, tensor_type="np" if kwargs["return_tensors"] == "np" else None)

    @property
    def has_own_image_processor(self) -> bool:
        """Whether the image processor is a [`CaptioningImageProcessor`]; remote code has copies of it."""
        return type(self.image_processor).__name__ == IMAGE_PROCESSOR

    def read_images(self, images: Any, draft: bool = False) -> list[Image.Image]:
        """Reads one image or several; `draft` decodes JPEG files no larger than needed, if the needed size is known."""
        if self.image_processor is None:
            raise ValueError("This processor has no image_processor; pass visual_features instead of images.")
        if self.has_own_image_processor:
            return self.image_processor.read_images(images, draft)
        images = self.image_processor.fetch_images(images)
        return images if isinstance(images, list) else [images]

    def read_clip(self, video: Any) -> list[Any]:
        """Returns the frames of a clip: a list, some frames of a file (path or bytes), or those of a row (`dict`)."""
        while isinstance(video, Mapping):
            video = next(video[key] for key in CLIP_KEYS if video.get(key) is not None)
        if isinstance(video, (list, tuple)):
            return list(video)
        return from_part("videos.frames_for")(self.image_processor, video)

    def clips(self, videos: Sequence[Any], **kwargs: Any) -> dict[str, torch.Tensor]:
        """Returns the pixels of clips, padded with zeros to the longest clip."""
        clips = [self.read_clip(video) for video in videos]
        frames = self.read_images([image for clip in clips for image in clip])
        pixels = super().__call__(images=frames, **{**kwargs, "return_tensors": "pt"})["pixel_values"]
        return pad_clips(pixels.split([len(clip) for clip in clips]))

    def prefixes(self, text: Sequence[str], **kwargs: Any) -> dict[str, Any]:
        """Returns decoder inputs with the start token, and their labels; see [`CaptioningProcessor.__call__`]."""
        with TOKENIZING:
            texts = [f"{self.tokenizer.bos_token} {prefix}".strip() for prefix in text]
            encoded = super().__call__(text=texts, **kwargs)
        names = {"input_ids": "decoder_input_ids", "attention_mask": "decoder_attention_mask"}
        labels = self.labels_of(encoded["input_ids"], encoded.get("attention_mask"))
        return {**{names.get(name, name): value for name, value in encoded.items()}, "labels": labels}

    def unknown_words(self, text: str) -> list[str]:
        """Returns the words of a text that are not in the vocabulary, including special tokens."""
        with TOKENIZING:
            encoded = self.tokenizer(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
            no_words = set(self.tokenizer.all_special_ids)  # including the unknown token
        pairs = zip(encoded["input_ids"], encoded["offset_mapping"], strict=True)
        return [text[start:end] for token, (start, end) in pairs if token in no_words]

    def caption_labels(self, captions: Sequence[str | None] | Sequence[Sequence[str | None]]) -> torch.Tensor:
        """Converts captions to labels `(B * C, T)`: words, the end token, then -100."""
        rows = [row if isinstance(row, (list, tuple)) else [row] for row in captions]
        if len({len(row) for row in rows}) > 1:
            raise ValueError("Every image of a batch needs the same number of captions; pad with None.")
        with TOKENIZING:
            flat = [caption or "" for row in rows for caption in row]
            words = self.tokenizer(flat, add_special_tokens=False)["input_ids"]
        labels = [torch.tensor([*ids, self.tokenizer.eos_token_id] if ids else [-100]) for ids in words]
        return pad_sequence(labels, batch_first=True, padding_value=-100)

    def labels_of(self, input_ids: Any, attention_mask: Any) -> torch.Tensor:
        """Returns the token after each of `input_ids` `(B, T)`; -100 at padding and in rows without words."""
        tokens = torch.as_tensor(input_ids)
        pad, end = self.tokenizer.pad_token_id, self.tokenizer.eos_token_id
        real = tokens != pad if attention_mask is None else torch.as_tensor(attention_mask) == 1
        is_before_word = functional.pad(real[:, 1:], (0, 1))
        labels = functional.pad(tokens[:, 1:], (0, 1)).where(is_before_word, end)
        return labels.masked_fill(~real | (real.sum(1, keepdim=True) < 2), -100)

    @property
    def model_input_names(self) -> list[str]:
        pixels = [] if self.image_processor is None else self.image_processor.model_input_names
        return [*pixels, "visual_features", "visual_boxes", *self.inputs_behind_boxes]

    def save_pretrained(self, save_directory: str | PathLike, *args: Any, **kwargs: Any) -> list[str]:
        files = super().save_pretrained(save_directory, *args, **kwargs)
        if self._auto_class is not None and self.has_own_image_processor:
            custom_object_save(self.image_processor, save_directory)
        return files

    def to_dict(self) -> dict:
        output = super().to_dict()
        if self._auto_class is None:
            output.pop("auto_map", None)  # from a checkpoint with code
        saved = output.pop("image_processor", None)
        if saved is not None:
            output["image_processor"] = saved
            saved.pop("auto_map", None)  # saving with code writes this processor's entry there
            if self._auto_class is not None and self.has_own_image_processor:
                saved["auto_map"] = {"AutoImageProcessor": f"image_processing_captioning.{IMAGE_PROCESSOR}"}
        return output

    @classmethod
    def _get_arguments_from_pretrained(
        cls, pretrained_model_name_or_path: str | PathLike, processor_dict: dict | None = None, **kwargs: Any
    ) -> list:
        tokenizer = cls._load_tokenizer_from_pretrained("tokenizer", pretrained_model_name_or_path, **kwargs)
        if not (processor_dict or {}).get("image_processor"):
            return [None, tokenizer]
        return [AutoImageProcessor.from_pretrained(pretrained_model_name_or_path, **kwargs), tokenizer]


def pad_visual_inputs(
    visual_features: Arrays | None = None, visual_boxes: Arrays | None = None
) -> dict[str, torch.Tensor]:
    """Pads the features or boxes of several images with zeros; see [`CaptioningProcessor.__call__`]."""
    features = [] if visual_features is None else as_arrays(visual_features, "visual_features")
    boxes = [] if visual_boxes is None else as_arrays(visual_boxes, "visual_boxes", may_be_empty=not features)
    for index, (array, image_rows) in enumerate(zip(boxes, features or boxes, strict=True) if boxes else ()):
        check_image_boxes(array, len(image_rows), f"image {index}")
    batch = {name: pad_arrays(part) for name, part in (("visual_features", features), ("visual_boxes", boxes)) if part}
    if features or len({len(array) for array in boxes}) > 1:
        batch["attention_mask"] = pad_arrays([np.ones(len(array), np.int64) for array in features or boxes])
    return batch


def pad_clips(clips: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
    """Pads the pixels `(T, 3, H, W)` of clips with frames of zeros, and adds a mask if there is padding."""
    batch = {"pixel_values": pad_sequence(list(clips), batch_first=True)}
    if len({len(clip) for clip in clips}) > 1:
        batch["attention_mask"] = pad_arrays([np.ones(len(clip), np.int64) for clip in clips])
    return batch


def pad_arrays(arrays: list[np.ndarray]) -> torch.Tensor:
    """Returns `(B, N, ...)` with zeros after the rows of shorter arrays."""
    return pad_sequence([torch.tensor(array) for array in arrays], batch_first=True)


def as_arrays(arrays: Arrays, name: str, may_be_empty: bool = False) -> list[np.ndarray]:
    """Returns one array per image, converted by [`checked_array`]; a single matrix is one image."""
    per_image: Any = [arrays] if len(arrays) and np.ndim(arrays[0]) == 1 and len(arrays[0]) else arrays
    return [checked_array(array, f"{name} of image {index}", may_be_empty) for index, array in enumerate(per_image)]


def checked_array(array: Any, name: str, may_be_empty: bool = False) -> np.ndarray:
    """Converts the array of an image to float32; raises a ValueError if it is not finite, or empty if that is wrong."""
    array = np.asarray(array.detach().cpu().float() if isinstance(array, torch.Tensor) else array, dtype=np.float32)
    if may_be_empty and not array.size:
        return np.zeros((0, 4), np.float32)
    if array.ndim != 2 or not array.size or not np.isfinite(array).all():
        raise ValueError(f"{name} has the shape {array.shape}; it must be (num_regions, size), not empty, and finite.")
    return array


def boxes_in_shares(boxes: Any, width: int, height: int, name: str) -> np.ndarray:
    """Converts boxes in pixels of an upright image to float32 boxes `(num_regions, 4)` within [0, 1]."""
    boxes = checked_array(boxes, f"boxes of {name}", may_be_empty=True)
    shares = (boxes / np.array([width, height, width, height], np.float32)).clip(0, 1) if boxes.shape[1] == 4 else boxes
    if boxes.shape[1] != 4 or not (shares[:, 2:] > shares[:, :2]).all():
        raise ValueError(f"Boxes of {name} must be x1, y1, x2, y2 with an area within {width} x {height} pixels.")
    return shares


def check_image_boxes(boxes: np.ndarray, num_regions: int, name: str) -> None:
    """Raises a ValueError unless boxes `(num_regions, 4)` lie within [0, 1], with x1 <= x2 and y1 <= y2."""
    low, high = boxes.min(initial=0), boxes.max(initial=0)
    is_valid = boxes.shape == (num_regions, 4) and low >= -BOX_TOLERANCE and high <= 1 + BOX_TOLERANCE
    if not is_valid or (boxes[:, 2:] < boxes[:, :2]).any():
        raise ValueError(
            f"visual_boxes of {name} have the shape {boxes.shape} and go from {low:.3g} to {high:.3g}; "
            f"they must be {num_regions} x 4: x1, y1, x2, y2 within [0, 1], with x1 <= x2 and y1 <= y2."
        )


def check_whole_images(image_processor: Any, changes: Mapping | None = None) -> None:
    """Raises a ValueError if an image processor, with changed settings if any, crops images."""
    settings = {**getattr(image_processor, "__dict__", {}), **(changes or {})}
    cuts_share = settings.get("crop_pct") and (settings["size"].get("shortest_edge") or 0) < CONVNEXT_UNCUT
    if settings.get("do_center_crop") or settings.get("do_crop_margin") or cuts_share:
        raise ValueError(
            "The image processor crops images, but boxes and attention maps refer to the whole image; use a "
            "CaptioningImageProcessor whose size is the height and width of the images."
        )


__all__ = ["CaptioningProcessor", "check_whole_images"]
