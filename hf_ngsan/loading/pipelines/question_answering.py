"""The pipeline that answers questions about images: that of a checkpoint, with attention maps and inputs to skip."""

from collections.abc import Mapping, Sequence
from types import GeneratorType
from typing import Any, ClassVar

import numpy as np
from torch.utils.data import Dataset
from transformers.feature_extraction_utils import BatchFeature

from ...models.attention_maps import attention_maps, question_attention
from .items import (
    Answered,
    Item,
    ItemPipeline,
    ItemReader,
    check_options,
    check_text,
    one_given,
    refuse_models_of_others,
    streamable,
    without_none,
)


class QuestionReader(ItemReader):
    """Reads inputs with a question; `text` is the question of inputs without one, for all or for each."""

    mask_names: ClassVar[dict[str, str]] = {"attention_mask": "visual_attention_mask"}

    def text_of(self, source: Mapping, name: str, index: int) -> str:
        question = self.own_or_given_text(source, "question", name, index)
        if question is None or question == "":
            raise ValueError(f"There is no question about {name}; give one, as question=... or beside the image.")
        check_text(question, f"The question about {name}")
        if not self.processor.tokenizer(question, add_special_tokens=False)["input_ids"]:
            raise ValueError(f"The question about {name}, {question!r:.60}, has no words; give one at least.")
        return question


class VisualQuestionAnsweringPipeline(ItemPipeline):
    r"""Answers questions about images.

    An input is a mapping with `question` and with `visual_features` `(num_regions, visual_feature_size)` and, where the
    model has geometry, `visual_boxes` `(num_regions, 4)`, or, for a model with a vision encoder, with `image` and, if
    wanted, `regions` in pixels: a row of a dataset is one. Images alone are inputs too, with `question=`. Lists,
    generators, columns and datasets work as for [`~hf_ngsan.loading.pipelines.CaptioningPipeline`].

    Call arguments:
        inputs, or image: one input or several.
        question (`str` or `list[str]`, *optional*): the question about all inputs, or about each; an input's own
            has priority.
        top_k (`int`, defaults to 5): maximal number of answers.
        return_attention (`bool`, defaults to `False`): return the regions to which each word of the question matters.
        attention_side (`int`, *optional*): longest side of the maps in pixels; the image's if `None`.
        on_error (`str`, defaults to `"raise"`): treatment of an input that cannot be read: `"raise"` an error that
            names it by its index, or `"skip"` it and continue.

    Returns:
        For an input a list of `{"answer": str, "score": float}`, the best first, each score between 0 and 1 on its own;
        for several inputs a list (for a generator, a column or a dataset an iterator) of such lists. For an input that
        was skipped the list is `[{"answer": None, "error": str}]`.

        With `return_attention` the first answer has also `"words"`, the T words of the question; `"attention"`: float32
        maps `(T, height, width)` of the image, of the regions to which each word mattered, or weights `(T,
        num_regions)` for features without an image or boxes (see
        [`~hf_ngsan.models.attention_maps.question_attention`]); and `"answer_attention"` `(height, width)` or
        `(num_regions,)`, the weights of regions in the answer.

    Raises:
        ValueError: an input that is no image and no such mapping, whose arrays do not fit, or without a question.
    """

    answer = "answer"

    def __init__(self, model: Any, **kwargs: Any) -> None:
        refuse_models_of_others("visual-question-answering", model)
        super().__init__(model, **kwargs)

    def _sanitize_parameters(  # type: ignore[override]
        self,
        question: str | Sequence[str] | None = None,
        top_k: int | None = None,
        return_attention: bool | None = None,
        attention_side: int | None = None,
        on_error: str | None = None,
    ) -> tuple[dict, dict, dict]:
        if top_k is not None and top_k < 1:
            raise ValueError(f"top_k is {top_k}; it must be at least 1.")
        check_options(on_error, attention_side)
        preprocess = {"text": question, "with_maps": return_attention, "attention_side": attention_side}
        forward = {"top_k": top_k, "return_attention": return_attention, "on_error": on_error}
        return without_none(preprocess), without_none(forward), {}

    def __call__(  # type: ignore[override]
        self, inputs: Any = None, question: str | Sequence[str] | None = None, image: Any = None, **kwargs: Any
    ) -> Any:
        inputs = streamable(one_given(inputs=inputs, image=image))
        is_one_input = not isinstance(inputs, (list, Dataset, GeneratorType))
        if isinstance(question, (list, tuple)) and is_one_input:
            inputs = [inputs] * len(question)
        return super().__call__(inputs, question=question, **kwargs)

    def reader(self, **preprocess_params: Any) -> ItemReader:
        return QuestionReader(self.processor, self.model.config, **preprocess_params)

    def with_regions(self, inputs: BatchFeature) -> BatchFeature:
        """Replaces pixels by visual features, boxes and mask, once for answers and attention."""
        if "pixel_values" not in inputs:
            return inputs
        names = ("pixel_values", "pixel_mask", "visual_boxes", "visual_attention_mask")
        seen = self.model.model.get_visual_tokens(**{name: inputs[name] for name in names if name in inputs})
        rest = {name: value for name, value in inputs.items() if name not in names}
        visual = {"visual_features": seen.visual_features, "visual_boxes": seen.visual_boxes}
        return BatchFeature({**rest, **visual, "visual_attention_mask": seen.attention_mask})

    def answers(  # type: ignore[override]
        self, items: list[Item], inputs: BatchFeature, top_k: int = 5, return_attention: bool = False
    ) -> list[Answered]:
        inputs = self.with_regions(inputs.to(self.device))
        scores = self.model(**inputs).logits.float().sigmoid().cpu()
        best = scores.topk(min(top_k, scores.shape[-1]))
        labels = self.model.config.id2label
        answered = [
            Answered([{"answer": labels[label], "score": score} for score, label in zip(*of_item, strict=True)])
            for of_item in zip(best.values.tolist(), best.indices.tolist(), strict=True)
        ]
        if return_attention:
            attention = question_attention(self.model, self.processor.tokenizer, inputs)
            for row, (item, of_item, of_question) in enumerate(zip(items, answered, attention, strict=True)):
                words, weights, regions = of_question
                of_item.answers[0] |= {"words": words, "attention": weights, "answer_attention": regions}
                of_item.place(item, inputs, row, "visual_attention_mask")
        return answered

    def postprocess(self, model_outputs: Any, **postprocess_parameters: Any) -> list[dict]:
        """Turns the attention weights of the best answer into maps."""
        if model_outputs.size is None:
            return model_outputs.answers
        best, *others = model_outputs.answers
        weights = np.concatenate([best["attention"], best["answer_attention"][None]])
        *maps, of_answer = attention_maps(weights, model_outputs.boxes, *model_outputs.size)
        more = {} if model_outputs.image is None else {"image": model_outputs.image}
        return [{**best, "attention": np.stack(maps), "answer_attention": of_answer, **more}, *others]


__all__ = ["VisualQuestionAnsweringPipeline"]
