"""`pipeline("image-to-text")` for captioners.

```python
captioner = pipeline("image-to-text", model="ngsan-flickr8k")
captioner("photo.jpg", num_beams=3)  # [{"generated_text": "a dog jumps over a log"}]
```
"""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from PIL import Image
from torch.utils.data import DataLoader, IterableDataset
from transformers.feature_extraction_utils import BatchFeature
from transformers.pipelines.base import Pipeline

from .attention_maps import attention_maps, word_attention, word_visualness_pairs
from .configuration_hub import check_choice
from .decoding import with_search
from .pipeline_items import (
    Batch,
    Item,
    ItemReader,
    Items,
    ItemStream,
    SettingsError,
    StreamError,
    real_size,
    refuse_chat,
    streamable,
    unreadable,
)
from .text_scores import text_scores

FAULTS_OF_DEVICES = (torch.OutOfMemoryError, getattr(torch, "AcceleratorError", torch.OutOfMemoryError))
PIXELS = ("pixel_values", "pixel_mask")
VISUAL_INPUTS = (*PIXELS, "visual_boxes", "attention_mask")


@dataclass
class Captioned:
    """Answers about one input and, for attention maps, its image and boxes."""

    answers: list[dict]
    boxes: np.ndarray | None = None
    size: tuple[int, int] | None = None
    image: Image.Image | None = None

    def place(self, item: Item, inputs: BatchFeature, row: int, mask: str) -> None:
        """Remembers the boxes of a row's real regions and the image that they are in, if maps are wanted."""
        if item.size is not None and inputs.get("visual_boxes") is not None:
            boxes = inputs["visual_boxes"][row][inputs[mask][row].bool()]
            self.boxes, self.size, self.image = boxes.float().cpu().numpy(), item.size, item.image


def unread(items: list[Item], answer: str, on_error: str) -> dict[int, Captioned]:
    """Returns the errors of items, by position, as answers; raises the first one unless they are skipped."""
    failed = {}
    for position, item in enumerate(items):
        if item.error is not None:
            if on_error == "raise" or isinstance(item.error, SettingsError):
                raise item.error
            failed[position] = Captioned([{answer: None, "error": str(item.error)}])
    return failed


def rows_of(inputs: BatchFeature, rows: list[int]) -> BatchFeature:
    return BatchFeature({name: tensor[rows] for name, tensor in inputs.items()})


class ImageToTextPipeline(Pipeline):
    r"""Captions images.

    With a vision encoder the captioner takes images: paths, URLs, bytes, open files, images of Pillow, arrays and
    tensors (see [`images.load_image`]), or mappings with `image` and, if wanted, `regions` `(num_regions, 4)` in pixels
    and `text`. Every captioner takes mappings with `visual_features` `(num_regions, visual_feature_size)` and, where
    the model has geometry, `visual_boxes` `(num_regions, 4)`. A row of a dataset is such a mapping; its image may be a
    path or a URL. Lists, other collections, generators,
    columns and datasets work as well; `batch_size=` decides how many are captioned together, and `num_workers=`
    processes read images ahead (one at most for a generator).

    Call arguments:
        inputs, or images: one input or several.
        text (`str` or `list[str]`, *optional*): beginning of every caption, or of the caption of each input; an input's
            own `"text"` has priority.
        return_attention (`bool`, defaults to `False`): return the attention of each word.
        return_visualness (`bool`, defaults to `False`): return how much each word depends on the image, for a captioner
            with adaptive attention (RSTNet).
        return_scores (`bool`, defaults to `False`): return how likely the captioner finds each caption and its words.
        return_confidence (`bool`, defaults to `False`): return how probable it is that each caption is right, and
            whether its image is unlike the training images, for a captioner that is calibrated (`hf-ngsan calibrate`);
            it needs the package hf-ngsan.
        attention_side (`int`, *optional*): longest side of the maps in pixels; the image's if `None`.
        on_error (`str`, defaults to `"raise"`): treatment of an input that cannot be read: `"raise"` an error that
            names it by its index, or `"skip"` it and continue. Nothing can continue after an error of an iterator
            itself: let a streamed dataset give its images undecoded (`datasets.Image(decode=False)`) to skip damaged
            ones.
        generate_kwargs (`dict`, *optional*) or any argument of `generate()`: `num_beams=5`, `max_new_tokens=30`,
            `num_return_sequences=3`, …
        required_words (`list`, *optional*): words that each caption shall have: strings, or lists of strings any of
            which will do (see [`decoding.constrained_beam_search`]).
        num_beam_groups (`int`, *optional*), with `diversity_penalty`: groups of beams that avoid each other's words
            (see [`decoding.diverse_beam_search`]).
        penalty_alpha (`float`, *optional*), with `candidates`: weight of the difference of a word from those before
            (see [`decoding.contrastive_search`]).

    Returns:
        For an input a list of `{"generated_text": str}`, one for each returned sequence; for several inputs a list (for
        a generator, a column or a dataset an iterator) of such lists. With `return_attention` each has also `"words"`,
        the T words of the caption, and `"attention"`: float32 maps `(T, height, width)` of the image (see
        [`attention_maps.attention_maps`]), or weights `(T, num_regions)` for features without an image or boxes; with
        `attention_side` also `"image"`, the upright image at the size of the maps. With `return_visualness` each has
        `"visualness"`: pairs of word and value in [0, 1] (see `attention_maps`). With `return_scores`
        each has `"score"` and `"word_scores"`: pairs of word and log-probability (see [`text_scores.TextScores`]). With
        `return_confidence` each has `"confidence"`, in [0, 1], and `"unlike_training"` besides. For an input that was
        skipped the list is `[{"generated_text": None, "error": str}]`.

    Raises:
        ValueError: an input that is no image and no such mapping, whose arrays do not fit, or whose text has words that
            the captioner does not know; attention or boxes of images from which the image processor cuts something.
    """

    model: Any
    processor: Any
    load_confidence: Callable[[], Any] | None = None
    """Set by the package, which judges captions; checkpoints' own code does not."""
    _load_processor: Any = True
    _load_image_processor: Any = False
    _load_feature_extractor: Any = False
    _load_tokenizer: Any = False
    # Arguments of generate() given to the constructor are kept here, by `_sanitize_parameters`.
    _pipeline_calls_generate = False

    def _sanitize_parameters(
        self,
        text: str | Sequence[str] | None = None,
        return_attention: bool | None = None,
        return_visualness: bool | None = None,
        return_scores: bool | None = None,
        return_confidence: bool | None = None,
        attention_side: int | None = None,
        on_error: str | None = None,
        generate_kwargs: dict | None = None,
        **kwargs: Any,
    ) -> tuple[dict, dict, dict]:
        if attention_side is not None and attention_side < 1:
            raise ValueError(f"attention_side is {attention_side}; it must be at least 1.")
        if on_error is not None:
            check_choice("on_error", on_error, ("raise", "skip"))
        preprocess = {"text": text, "with_maps": return_attention, "attention_side": attention_side}
        forward = {
            "return_attention": return_attention,
            "return_visualness": return_visualness,
            "return_scores": return_scores,
            "return_confidence": return_confidence,
            "on_error": on_error,
        }

        def given(arguments: dict) -> dict:
            return {name: value for name, value in arguments.items() if value is not None}

        return given(preprocess), {**(generate_kwargs or {}), **kwargs, **given(forward)}, {}

    def __call__(self, inputs: Any = None, images: Any = None, **kwargs: Any) -> Any:  # type: ignore[override]
        if inputs is not None and images is not None:
            raise ValueError("Give inputs or images, not both: they are two names for the same.")
        inputs = images if inputs is None else inputs
        for given in (inputs, kwargs.get("text")):
            refuse_chat(given)
        inputs = streamable(inputs)
        if isinstance(inputs, list) and not inputs:
            return []
        return super().__call__(inputs, **kwargs)

    def save_pretrained(self, save_directory: str | os.PathLike, **kwargs: Any) -> None:
        """Saves the model and its processor, with their code if they were loaded with it."""
        self.model.save_pretrained(save_directory, **kwargs)
        self.processor.save_pretrained(save_directory, **kwargs)

    def reader(self, **preprocess_params: Any) -> ItemReader:
        return ItemReader(self.processor, self.model.config, **preprocess_params)

    def preprocess(self, inputs: Any, **preprocess_params: Any) -> Any:  # type: ignore[override]
        reader = self.reader(**preprocess_params)
        reader.check_number(1)
        return reader.collate([reader.try_to_read(inputs)])

    def run_single(
        self, inputs: Any, preprocess_params: dict, forward_params: dict, postprocess_params: dict
    ) -> list[dict]:
        [captioned] = self.forward(self.preprocess(inputs, **preprocess_params), **forward_params)
        return self.postprocess(captioned, **postprocess_params)

    def get_iterator(
        self,
        inputs: Any,
        num_workers: int,
        batch_size: int,
        preprocess_params: dict,
        forward_params: dict,
        postprocess_params: dict,
    ) -> Iterator[list[dict]]:
        reader = self.reader(**preprocess_params)
        if isinstance(inputs, IterableDataset):
            items: Any = ItemStream(inputs, reader)
            num_workers = min(num_workers, 1)
        else:
            items = Items(inputs, reader)
        for batch in DataLoader(items, num_workers=num_workers, batch_size=batch_size, collate_fn=reader.collate):
            is_cut_off = isinstance(batch.items[-1].error, StreamError)
            failure = batch.items.pop().error if is_cut_off else None
            for captioned in self.forward(batch, **forward_params):
                yield self.postprocess(captioned, **postprocess_params)
            if failure is not None:
                raise failure

    def _forward(  # type: ignore[override]
        self,
        batch: Batch,
        return_attention: bool = False,
        return_visualness: bool = False,
        return_scores: bool = False,
        return_confidence: bool = False,
        on_error: str = "raise",
        **generate_kwargs: Any,
    ) -> list[Captioned]:
        is_adaptive = getattr(self.model.config, "adaptive_attention", False) and hasattr(self.model, "word_visualness")
        if return_visualness and not is_adaptive:
            raise ValueError("return_visualness=True needs a captioner with adaptive attention, such as RSTNet.")
        if return_attention and not hasattr(self.model, "model"):
            raise ValueError("return_attention=True needs one captioner; an ensemble has no attention of its own.")
        if return_confidence and not hasattr(self.model, "model"):
            raise ValueError("return_confidence=True needs one captioner; an ensemble has no calibration.")
        returned = {
            "attention": return_attention,
            "visualness": return_visualness,
            "scores": return_scores,
            "confidence": return_confidence,
        }
        generate_kwargs = with_search(generate_kwargs, self.processor)
        groups = [self.see(batch.items, positions, inputs.to(self.device)) for positions, inputs in batch.groups]
        captioned = unread(batch.items, "generated_text", on_error)
        for positions, inputs in groups:
            if positions:
                items = [batch.items[position] for position in positions]
                found = self.caption(items, inputs, returned, generate_kwargs)
                captioned.update(zip(positions, found, strict=True))
        return [captioned[position] for position in range(len(batch.items))]

    def see(self, items: list[Item], positions: list[int], inputs: BatchFeature) -> tuple[list[int], BatchFeature]:
        """Adds visual tokens to pixels, once for captions and attention.

        An item whose image the vision encoder cannot take, such as one with a side smaller than a kernel, gets an error
        and is left out. Backbones do not tell beforehand which images these are.
        """
        if "pixel_values" not in inputs or not hasattr(self.model, "model"):  # an ensemble's members encode themselves
            return positions, inputs
        visual = {name: inputs[name] for name in VISUAL_INPUTS if name in inputs}
        try:
            tokens = self.model.model.get_visual_tokens(**visual)
        except FAULTS_OF_DEVICES:
            raise
        except (RuntimeError, ValueError) as error:
            if len(positions) == 1:
                item, (height, width) = items[positions[0]], real_size(visual)
                fault = f"cannot be encoded by the vision encoder with {width} x {height} pixels"
                item.error = unreadable(item.name, error, fault)
                return [], inputs
            # One by one, to find the images at fault; if there is none, the batch itself is too much.
            alone = [
                self.see(items, positions[row : row + 1], rows_of(inputs, [row]))[0] for row in range(len(positions))
            ]
            rows = [row for row, seen in enumerate(alone) if seen]
            if len(rows) == len(positions):
                raise
            return self.see(items, [positions[row] for row in rows], rows_of(inputs, rows)) if rows else ([], inputs)
        kept = {name: inputs[name] for name in inputs if name not in visual or name in PIXELS}
        return positions, BatchFeature(kept | tokens)

    def caption(
        self,
        items: list[Item],
        inputs: BatchFeature,
        returned: dict[str, bool],
        generate_kwargs: dict,
    ) -> list[Captioned]:
        """Captions items that have the same kinds of inputs; `returned` says what is returned with the captions."""
        pixels = {}
        if "visual_features" in inputs:
            pixels = {name: inputs.pop(name) for name in PIXELS if name in inputs}
        sequences = self.model.generate(**inputs, **generate_kwargs)
        sequences = getattr(sequences, "sequences", sequences)
        texts = self.processor.batch_decode(sequences, skip_special_tokens=True)
        answers = [{"generated_text": text.strip()} for text in texts]
        each = len(answers) // len(items)
        captioned = [Captioned(answers[row * each : (row + 1) * each]) for row in range(len(items))]
        if returned["scores"] or returned["confidence"]:
            scores = text_scores(self.model, self.processor.tokenizer, inputs, sequences)
            for answer, of_text in zip(answers, scores, strict=True):
                answer.update(score=of_text.score, word_scores=of_text.words)
        if returned["confidence"]:
            visual = {name: inputs[name] for name in ("visual_features", "attention_mask") if name in inputs} | pixels
            given = [answer["generated_text"] for answer in answers], [answer["score"] for answer in answers]
            for answer, judgement in zip(answers, self.confidence.judge(visual, *given), strict=True):
                answer.update(confidence=judgement.confidence, unlike_training=judgement.unlike_training)
        if returned["visualness"]:
            pairs = word_visualness_pairs(self.model, self.processor.tokenizer, inputs, sequences)
            for answer, of_words in zip(answers, pairs, strict=True):
                answer["visualness"] = of_words
        if returned["attention"]:
            attention = word_attention(self.model, self.processor.tokenizer, inputs, sequences)
            for answer, (words, weights) in zip(answers, attention, strict=True):
                answer.update(words=words, attention=weights)
            for row, (item, of_item) in enumerate(zip(items, captioned, strict=True)):
                of_item.place(item, inputs, row, "attention_mask")
        return captioned

    @cached_property
    def confidence(self) -> Any:
        """The judge of captions, loaded when it is first asked."""
        if self.load_confidence is not None:
            return self.load_confidence()
        raise ValueError("return_confidence=True needs the package hf-ngsan: import hf_ngsan, then make the pipeline.")

    def postprocess(self, model_outputs: Any, **postprocess_parameters: Any) -> list[dict]:
        """Turns attention weights into maps: one input at a time in the calling process, since maps are large."""
        if model_outputs.size is None:
            return model_outputs.answers
        more = {} if model_outputs.image is None else {"image": model_outputs.image}
        return [
            {
                **answer,
                "attention": attention_maps(answer["attention"], model_outputs.boxes, *model_outputs.size),
                **more,
            }
            for answer in model_outputs.answers
        ]
