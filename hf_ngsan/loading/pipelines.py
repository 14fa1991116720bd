"""Classes that `pipeline()` uses after this package is imported: for its models, and for others of transformers."""

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from transformers import AutoProcessor
from transformers.feature_extraction_utils import BatchFeature
from transformers.pipelines.image_text_to_text import ImageTextToTextPipeline as StockPipeline

from ..guests.captioners import Guest, generated, guest_of, image_text_processor
from ..models.attention_maps import question_attention, word_attention, word_visualness_pairs
from ..models.decoding import with_search
from ..models.text_scores import TextScores, text_scores
from ..registry import own_model_types
from .engines import use_engine
from .pipeline_inputs import GuestReader, Item, ItemPipeline, QuestionReader


class CaptioningPipeline(ItemPipeline):
    r"""Captions images.

    A captioner with a vision encoder accepts images of any kind that
    [`~hf_ngsan.models.image_processing_captioning.load_image`] reads, or mappings with `image` and optionally
    `visual_boxes` `(num_regions, 4)` or `boxes` in pixels, and `text`. Every captioner accepts mappings with
    `visual_features` `(num_regions, visual_feature_size)` and, for geometry, `visual_boxes` `(num_regions, 4)`; a row
    of a dataset is such a mapping. Lists, other collections, generators, columns and datasets work as well.
    `batch_size=` sets the number of images per batch, and `num_workers=` processes read images ahead (except from a
    generator).

    Call arguments:
        inputs, or images: one input or several.
        text (`str`, *optional*): beginning of every caption; `"text"` of an input has priority.
        return_attention (`bool`, defaults to `False`): return the attention of each word.
        return_visualness (`bool`, defaults to `False`): return how much each word depends on the image, for a captioner
            with adaptive attention (RSTNet).
        return_scores (`bool`, defaults to `False`): return log-probabilities of each caption and its words.
        return_confidence (`bool` or `Confidence`): return the probability that each caption is right, and whether
            its image is unlike the training images; for pixels, and a calibrated captioner (`hf-ngsan calibrate`).
        attention_side (`int`, *optional*): longest side of the maps in pixels; that of the image if `None`.
        on_error (`str`, defaults to `"raise"`): for an input that cannot be read, `"raise"` an error with its index, or
            `"skip"` it and continue. An error of the iterator itself always ends the call: to skip damaged images of a
            streamed dataset, leave its images undecoded (`datasets.Image(decode=False)`).
        generate_kwargs (`dict`, *optional*) or any argument of `generate()`: `num_beams=5`, `num_return_sequences=3`, …
        required_words, forbidden_words, num_beam_groups, ...: other beam searches (see [`~hf_ngsan.models.decoding`]).

    Returns:
        For one input, a list of `{"generated_text": str}`, one for each returned sequence; for several inputs, a list
        of such lists (for a generator, a column or a dataset, an iterator). For a skipped input, the list is
        `[{"generated_text": None, "error": str}]`. On request, each dictionary also has:

        - `"words"`, the T words of the caption, and `"attention"`: float32 maps `(T, height, width)` of the image (see
          [`~hf_ngsan.models.attention_maps.attention_maps`]), or weights `(T, num_regions)` for features without an
          image or boxes; with `attention_side` also `"image"`, the upright image at the size of the maps
        - `"visualness"`: pairs of word and value in [0, 1]
        - `"score"` and `"word_scores"`: pairs of word and log-probability (see
          [`~hf_ngsan.models.text_scores.TextScores`])
        - `"confidence"` in [0, 1], `"unlike_training"`, and `"doubt"`, a warning for a doubtful caption or `None`

    Raises:
        ValueError: an input is neither an image nor such a mapping, its arrays have wrong shapes, or its text has words
            outside of the vocabulary; or attention or boxes are used with an image processor that crops images.
    """

    # Loaded if available: checkpoints of transformers may have a tokenizer and an image processor but no processor.
    _load_processor: Any = None
    _load_tokenizer: Any = None
    _load_image_processor: Any = None

    def __new__(cls, model: Any, **kwargs: Any) -> "CaptioningPipeline":
        """Makes a [`GuestCaptioningPipeline`] for a captioner of transformers."""
        is_own = model.config.model_type in own_model_types("captioning")
        return super().__new__(cls if is_own else GuestCaptioningPipeline)

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

    def answer(
        self,
        items: list[Item],
        inputs: BatchFeature,
        return_attention: bool = False,
        return_visualness: bool = False,
        return_scores: bool = False,
        return_confidence: Any = False,
        **generate_kwargs: Any,
    ) -> list[dict]:
        tokenizer = self.processor.tokenizer
        inputs, pixels = self.with_visual_tokens(inputs.to(self.device))
        sequences = self.model.generate(**inputs, **with_search(generate_kwargs, self.processor))
        sequences = getattr(sequences, "sequences", sequences)
        texts = [text.strip() for text in self.processor.batch_decode(sequences, skip_special_tokens=True)]
        answers: list[dict] = [{"generated_text": text} for text in texts]
        if return_scores or return_confidence:
            add_scores(answers, text_scores(self.model, tokenizer, inputs, sequences))
        if return_confidence and pixels:
            scores = [answer["score"] for answer in answers]
            judge = self.confidence if return_confidence is True else return_confidence
            judgements = judge.judge(pixels, texts, scores)
            answers = [answer | judgement for answer, judgement in zip(answers, judgements, strict=True)]
        if return_visualness:
            pairs = word_visualness_pairs(self.model, tokenizer, inputs, sequences)
            for answer, word_values in zip(answers, pairs, strict=True):
                answer["visualness"] = word_values
        if return_attention:
            attention = word_attention(self.model, tokenizer, inputs, sequences)
            for answer, (words, weights) in zip(answers, attention, strict=True):
                answer.update(words=words, attention=weights)
            self.place_maps(items, inputs)
        return answers

    @cached_property
    def confidence(self) -> Any:
        """The judge of captions, loaded on first use."""
        from .confidence import Confidence  # slow to import, rarely needed

        return Confidence(self.model.name_or_path, self.device)


def add_scores(answers: list[dict], scores: Sequence[TextScores]) -> None:
    for answer, text_score in zip(answers, scores, strict=True):
        answer.update(score=text_score.score, word_scores=text_score.words)


class GuestCaptioningPipeline(CaptioningPipeline):
    """Captions images with a captioner of transformers and its `generate`; `text` may be a prompt."""

    def __init__(
        self, model: Any, *, processor: Any = None, tokenizer: Any = None, image_processor: Any = None, **kwargs: Any
    ) -> None:
        parts = [part for part in (processor, tokenizer, image_processor) if part is not None]
        super().__init__(model, processor=image_text_processor(model.name_or_path, parts), **kwargs)
        self.guest: Guest = guest_of(self.model, self.processor)

    def reader(self, **preprocess_params: Any) -> GuestReader:
        return GuestReader(self.processor, self.model.config, guest=self.guest, **preprocess_params)

    def answer(  # type: ignore[override]
        self, items: list[Item], inputs: BatchFeature, return_scores: bool = False, **generate_kwargs: Any
    ) -> list[dict]:
        for name in ("return_attention", "return_visualness", "return_confidence"):
            if generate_kwargs.pop(name, False):
                kind = self.model.config.model_type
                raise ValueError(f"{name}=True needs a captioner of hf-ngsan; this is a {kind} model.")
        inputs, sequences = generated(self.guest, inputs, **generate_kwargs)
        answers: list[dict] = [{"generated_text": text} for text in self.guest.decode(sequences, inputs)]
        if return_scores:
            add_scores(answers, text_scores(self.model, self.guest.tokenizer, inputs, sequences))
        return answers


ImageToTextPipeline = CaptioningPipeline  # its former public name, kept for a release


class ImageTextToTextPipeline(StockPipeline):
    """Makes a [`CaptioningPipeline`] for captioners of this package, and transformers' pipeline for other models."""

    def __new__(cls, model: Any, **kwargs: Any) -> Any:
        is_own = model.config.model_type in own_model_types("captioning")
        return (CaptioningPipeline if is_own else StockPipeline)(model, **kwargs)


class QuestionAnsweringPipeline(ItemPipeline):
    r"""Answers questions about images.

    Inputs are those of [`CaptioningPipeline`], with a key `question` or the argument `question=`.

    Call arguments:
        inputs, or image: one input or several.
        question (`str`, *optional*): question about all inputs; the question of an input has priority.
        top_k (`int`, defaults to 5): maximum number of answers.
        return_attention (`bool`, defaults to `False`): return the attention of regions to each word of the question.
        attention_side, on_error: see [`CaptioningPipeline`].

    Returns:
        For one input, a list of `{"answer": str, "score": float}`, the best first; each score is a separate probability
        (sigmoid). For several inputs, a list of such lists (for a generator, a column or a dataset, an iterator). For a
        skipped input, the list is `[{"answer": None, "error": str}]`.

        With `return_attention`, the first answer also has `"words"`, the T words of the question; their `"attention"`,
        float32 maps `(T, height, width)`, or weights `(T, num_regions)` for features without an image or boxes; and
        `"answer_attention"`, `(height, width)` or `(num_regions,)`, the attention of the answer.

    Raises:
        ValueError: an input is neither an image nor such a mapping, has arrays of wrong shapes, or has no question.
    """

    text_key = "answer"
    text_argument = "question"
    reader_class = QuestionReader

    def __call__(self, inputs: Any = None, image: Any = None, **kwargs: Any) -> Any:  # type: ignore[override]
        return super().__call__(inputs, image, **kwargs)

    def answer(  # type: ignore[override]
        self, items: list[Item], inputs: BatchFeature, top_k: int = 5, return_attention: bool = False
    ) -> list[dict]:
        inputs, _ = self.with_visual_tokens(inputs.to(self.device))
        scores = self.model(**inputs).logits.float().sigmoid().cpu()
        best = scores.topk(min(top_k, scores.shape[-1]))
        labels = self.model.config.id2label
        pairs = zip(best.values.flatten().tolist(), best.indices.flatten().tolist(), strict=True)
        answers = [{"answer": labels[label], "score": score} for score, label in pairs]
        if return_attention:
            attention = question_attention(self.model, self.processor.tokenizer, inputs)
            for answer, (words, weights, regions) in zip(answers[:: best.values.shape[-1]], attention, strict=True):
                answer |= {"words": words, "attention": weights, "answer_attention": regions}
            self.place_maps(items, inputs)
        return answers


VisualQuestionAnsweringPipeline = QuestionAnsweringPipeline  # its former public name, kept for a release
