"""The captioning pipelines of the package, for its captioners and those of transformers: maps, scores, confidence.

```python
captioner = pipeline("image-to-text", model=packaged_model("ngsan-flickr8k"))  # after import hf_ngsan
captioner("photo.jpg", num_beams=3)  # [{"generated_text": "a dog jumps over a log"}]
```
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from transformers import AutoProcessor
from transformers.feature_extraction_utils import BatchFeature

from ...guests.captioners import Guest, batches, generated, guest_of, image_text_processor
from ...models.attention_maps import attention_maps, word_attention, word_visualness_pairs
from ...models.decoding import with_search
from ...models.image_processing_captioning import load_image
from ...models.processing_captioning import check_whole_images
from ...models.text_scores import TextScores, text_scores
from ...registry import own_model_types
from ..engines import use_engine
from .items import (
    Answered,
    Batch,
    Item,
    ItemPipeline,
    ItemReader,
    check_options,
    check_text,
    one_given,
    unreadable,
    without_none,
)

PIXELS = ("pixel_values", "pixel_mask")
VISUAL_INPUTS = (*PIXELS, "visual_boxes", "attention_mask")


class CaptioningPipeline(ItemPipeline):
    r"""Captions images.

    With a vision encoder the captioner takes images: paths, URLs, bytes, open files, images of Pillow, arrays and
    tensors (see [`~hf_ngsan.models.image_processing_captioning.load_image`]), or mappings with `image` and, if wanted,
    `regions` `(num_regions, 4)` in pixels and `text`. Every captioner takes mappings with `visual_features`
    `(num_regions, visual_feature_size)` and, where the model has geometry, `visual_boxes` `(num_regions, 4)`. A row of
    a dataset is such a mapping; its image may be a path or a URL. Lists, other collections, generators, columns and
    datasets work as well; `batch_size=` decides how many are captioned together, and `num_workers=` processes read
    images ahead (one at most for a generator).

    Call arguments:
        inputs, or images: one input or several.
        text (`str` or `list[str]`, *optional*): beginning of every caption, or of the caption of each input; an input's
            own `"text"` has priority.
        return_attention (`bool`, defaults to `False`): return the attention of each word.
        return_visualness (`bool`, defaults to `False`): return how much each word depends on the image, for a captioner
            with adaptive attention (RSTNet).
        return_scores (`bool`, defaults to `False`): return how likely the captioner finds each caption and its words.
        return_confidence (`bool`, defaults to `False`): return how probable it is that each caption is right, and
            whether its image is unlike the training images, for a captioner that is calibrated (`hf-ngsan calibrate`).
        attention_side (`int`, *optional*): longest side of the maps in pixels; the image's if `None`.
        on_error (`str`, defaults to `"raise"`): treatment of an input that cannot be read: `"raise"` an error that
            names it by its index, or `"skip"` it and continue. Nothing can continue after an error of an iterator
            itself: let a streamed dataset give its images undecoded (`datasets.Image(decode=False)`) to skip damaged
            ones.
        generate_kwargs (`dict`, *optional*) or any argument of `generate()`: `num_beams=5`, `max_new_tokens=30`,
            `num_return_sequences=3`, …
        required_words (`list`, *optional*): words that each caption shall have: strings, or lists of strings any of
            which will do (see [`~hf_ngsan.models.decoding.constrained_beam_search`]).
        num_beam_groups (`int`, *optional*), with `diversity_penalty`: groups of beams that avoid each other's words
            (see [`~hf_ngsan.models.decoding.diverse_beam_search`]).
        penalty_alpha (`float`, *optional*), with `candidates`: weight of the difference of a word from those before
            (see [`~hf_ngsan.models.decoding.contrastive_search`]).

    Returns:
        For an input a list of `{"generated_text": str}`, one for each returned sequence; for several inputs a list (for
        a generator, a column or a dataset an iterator) of such lists. With `return_attention` each has also `"words"`,
        the T words of the caption, and `"attention"`: float32 maps `(T, height, width)` of the image (see
        [`~hf_ngsan.models.attention_maps.attention_maps`]), or weights `(T, num_regions)` for features without an image
        or boxes; with `attention_side` also `"image"`, the upright image at the size of the maps. With
        `return_visualness` each has `"visualness"`: pairs of word and value in [0, 1] (see
        [`~hf_ngsan.models.attention_maps.word_visualness_pairs`]). With `return_scores` each has `"score"` and
        `"word_scores"`: pairs of word and log-probability (see [`~hf_ngsan.models.text_scores.TextScores`]). With
        `return_confidence` each has `"confidence"`, in [0, 1], and `"unlike_training"` besides. For an input that was
        skipped the list is `[{"generated_text": None, "error": str}]`.

    Raises:
        ValueError: an input that is no image and no such mapping, whose arrays do not fit, or whose text has words that
            the captioner does not know; attention or boxes of images from which the image processor cuts something.
    """

    # Those that are there: checkpoints of transformers may have a tokenizer and an image processor in place of both.
    _load_processor: Any = None
    _load_tokenizer: Any = None
    _load_image_processor: Any = None

    def __new__(cls, model: Any, **kwargs: Any) -> "CaptioningPipeline":
        """Makes a [`GuestCaptioningPipeline`] for a captioner of transformers."""
        if model.config.model_type in own_model_types("captioning"):
            return super().__new__(cls)
        return super().__new__(GuestCaptioningPipeline)

    def __init__(
        self,
        model: Any,
        *,
        processor: Any = None,
        tokenizer: Any = None,
        image_processor: Any = None,
        engine: str = "torch",
        **kwargs: Any,
    ) -> None:
        processor = AutoProcessor.from_pretrained(model.name_or_path) if processor is None else processor
        super().__init__(model, processor=processor, **kwargs)
        use_engine(model, processor, engine)

    def _sanitize_parameters(  # type: ignore[override]
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
        check_options(on_error, attention_side)
        preprocess = {"text": text, "with_maps": return_attention, "attention_side": attention_side}
        forward = {
            "return_attention": return_attention,
            "return_visualness": return_visualness,
            "return_scores": return_scores,
            "return_confidence": return_confidence,
            "on_error": on_error,
        }
        return without_none(preprocess), {**(generate_kwargs or {}), **kwargs, **without_none(forward)}, {}

    def __call__(self, inputs: Any = None, images: Any = None, **kwargs: Any) -> Any:  # type: ignore[override]
        return super().__call__(one_given(inputs=inputs, images=images), **kwargs)

    def reader(self, **preprocess_params: Any) -> ItemReader:
        if preprocess_params.get("with_maps"):
            check_whole_images(self.processor.image_processor)
        return ItemReader(self.processor, self.model.config, **preprocess_params)

    def answers(
        self,
        items: list[Item],
        inputs: BatchFeature,
        return_attention: bool = False,
        return_visualness: bool = False,
        return_scores: bool = False,
        return_confidence: bool = False,
        **generate_kwargs: Any,
    ) -> list[Answered]:
        is_adaptive = getattr(self.model.config, "adaptive_attention", False) and hasattr(self.model, "word_visualness")
        if return_visualness and not is_adaptive:
            raise ValueError("return_visualness=True needs a captioner with adaptive attention, such as RSTNet.")
        if (return_attention or return_confidence) and not hasattr(self.model, "model"):
            raise ValueError("return_attention and return_confidence need one captioner, not an ensemble.")
        tokenizer, inputs, pixels = self.processor.tokenizer, self.with_visual_tokens(inputs.to(self.device)), {}
        if "visual_features" in inputs:
            pixels = {name: inputs.pop(name) for name in PIXELS if name in inputs}
        sequences = self.model.generate(**inputs, **with_search(generate_kwargs, self.processor))
        sequences = getattr(sequences, "sequences", sequences)
        texts = [text.strip() for text in self.processor.batch_decode(sequences, skip_special_tokens=True)]
        answers: list[dict] = [{"generated_text": text} for text in texts]
        captioned = of_items(answers, items)
        if return_scores or return_confidence:
            add_scores(answers, text_scores(self.model, tokenizer, inputs, sequences))
        if return_confidence:
            visual = {name: inputs[name] for name in ("visual_features", "attention_mask") if name in inputs} | pixels
            judgements = self.confidence.judge(visual, texts, [answer["score"] for answer in answers])
            for answer, judgement in zip(answers, judgements, strict=True):
                answer.update(judgement._asdict())
        if return_visualness:
            pairs = word_visualness_pairs(self.model, tokenizer, inputs, sequences)
            for answer, of_words in zip(answers, pairs, strict=True):
                answer["visualness"] = of_words
        if return_attention:
            attention = word_attention(self.model, tokenizer, inputs, sequences)
            for answer, (words, weights) in zip(answers, attention, strict=True):
                answer.update(words=words, attention=weights)
            for row, (item, of_item) in enumerate(zip(items, captioned, strict=True)):
                of_item.place(item, inputs, row, "attention_mask")
        return captioned

    def with_visual_tokens(self, inputs: BatchFeature) -> BatchFeature:
        """Adds visual tokens to pixels, once for captions and attention; members of an ensemble make their own."""
        if "pixel_values" not in inputs or not hasattr(self.model, "model"):
            return inputs
        visual = {name: inputs[name] for name in VISUAL_INPUTS if name in inputs}
        kept = {name: inputs[name] for name in inputs if name not in visual or name in PIXELS}
        return BatchFeature(kept | self.model.model.get_visual_tokens(**visual))

    @cached_property
    def confidence(self) -> Any:
        """The judge of captions, loaded when it is first asked."""
        from ..confidence import Confidence  # few need it

        return Confidence.load(self.model.name_or_path, self.device)

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


def of_items(answers: list[dict], items: list[Item]) -> list[Answered]:
    """Returns answers, those about an item next to each other, as those of each item."""
    each = len(answers) // len(items)
    return [Answered(answers[row * each : (row + 1) * each]) for row in range(len(items))]


def add_scores(answers: list[dict], scores: Sequence[TextScores]) -> None:
    for answer, of_text in zip(answers, scores, strict=True):
        answer.update(score=of_text.score, word_scores=of_text.words)


@dataclass
class GuestReader(ItemReader):
    """Reads images, and makes the inputs of each by itself: processors differ in how they make a batch."""

    guest: Any = None

    @property
    def takes_images(self) -> bool:
        return True

    def check_prefix(self, text: str, name: str) -> None:
        check_text(text, name)
        longest = getattr(self.config.get_text_config(decoder=True), "max_position_embeddings", None)
        if longest and self.number_of_words(text) >= longest:
            raise ValueError(f"{name} is longer than what this model reads: {longest - 1} tokens.")

    def number_of_words(self, text: str) -> int:
        return len(self.processor.tokenizer(text, add_special_tokens=False)["input_ids"])

    def read_features(self, item: Item, source: Any) -> None:
        raise ValueError(f"This {self.config.model_type} model takes images, not visual_features; give an image.")

    def read_image(self, item: Item, source: Any) -> None:
        if source.get("regions") is not None or source.get("visual_boxes") is not None:
            raise ValueError(f"This {self.config.model_type} model takes whole images; leave out their regions.")
        image = load_image(source["image"], item.name)
        try:
            item.pixels = self.guest.inputs(image, item.text)
        except Exception as error:  # each processor has its own
            raise unreadable(item.name, error, "cannot be made into inputs") from error

    def collate(self, items: list[Item]) -> Batch:
        readable = [position for position, item in enumerate(items) if item.error is None]
        inputs: list[Any] = [items[position].pixels for position in readable]
        groups = [([readable[place] for place in places], together) for places, together in batches(inputs)]
        for item in items:
            item.pixels = None
        return Batch(items, groups)


class GuestCaptioningPipeline(CaptioningPipeline):
    r"""Captions images with a captioner of transformers: BLIP, GIT, ViT-GPT2, Florence-2, models that chat, ...

    Inputs and outputs are those of [`CaptioningPipeline`], without features, regions, attention, visualness and
    confidence; captions are those of the model's own `generate` with the same arguments.

    Call arguments:
        inputs, or images: one image or several; mappings with `image` and, if wanted, `text`.
        text (`str` or `list[str]`, *optional*): the beginning of every caption, or for models that take prompts the
            prompt, such as `"<DETAILED_CAPTION>"` of Florence-2 or a question to a model that chats.
        on_error, generate_kwargs: see [`CaptioningPipeline`]; any argument of the model's `generate()`.

    Returns:
        For an input a list of `{"generated_text": str}`, one for each returned sequence; for several inputs a list of
        such lists.

    Raises:
        ValueError: an input that is no image, or an argument that the model does not take.
    """

    def __init__(
        self, model: Any, *, processor: Any = None, tokenizer: Any = None, image_processor: Any = None, **kwargs: Any
    ) -> None:
        parts = [part for part in (processor, tokenizer, image_processor) if part is not None]
        super().__init__(model, processor=image_text_processor(model.name_or_path, parts), **kwargs)
        self.guest: Guest = guest_of(self.model, self.processor)

    def reader(self, **preprocess_params: Any) -> GuestReader:
        return GuestReader(self.processor, self.model.config, guest=self.guest, **preprocess_params)

    def answers(  # type: ignore[override]
        self, items: list[Item], inputs: BatchFeature, return_scores: bool = False, **generate_kwargs: Any
    ) -> list[Answered]:
        for name in ("return_attention", "return_visualness", "return_confidence"):
            if generate_kwargs.pop(name, False):
                raise ValueError(
                    f"{name}=True needs a captioner of hf-ngsan; this is a {self.model.config.model_type} model."
                )
        inputs, sequences = generated(self.guest, inputs, **generate_kwargs)
        answers: list[dict] = [{"generated_text": text} for text in self.guest.decode(sequences, inputs)]
        if return_scores:
            add_scores(answers, text_scores(self.model, self.guest.tokenizer, inputs, sequences))
        return of_items(answers, items)
