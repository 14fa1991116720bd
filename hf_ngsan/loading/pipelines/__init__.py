"""Pipelines of `pipeline()` while this package is imported: its own for its own models, else transformers'."""

from typing import Any

from transformers.pipelines.image_text_to_text import ImageTextToTextPipeline as StockPipeline

from ...models.pipeline_translation import TranslationPipeline as PlainTranslationPipeline
from ...models.text_scores import text_scores
from ...registry import own_model_types
from .captioning import CaptioningPipeline
from .items import refuse_models_of_others
from .question_answering import VisualQuestionAnsweringPipeline

ImageToTextPipeline = CaptioningPipeline  # its public name, that of the task


class ImageTextToTextPipeline(StockPipeline):
    """Makes a [`CaptioningPipeline`] for this package's captioners, and transformers' own for every other model."""

    def __new__(cls, model: Any, **kwargs: Any) -> Any:
        is_own = model.config.model_type in own_model_types("captioning")
        return (CaptioningPipeline if is_own else StockPipeline)(model, **kwargs)


class TranslationPipeline(PlainTranslationPipeline):
    r"""Translates texts with a model of `AutoModelForSeq2SeqLM` and its tokenizer.

    Call arguments:
        inputs: a text, or a list, generator or dataset column of texts.
        batch_size (`int`, *optional*): texts that are translated together.
        return_scores (`bool`, defaults to `False`): return how likely the model finds each translation and its words.
        generate_kwargs (`dict`, *optional*) or any argument of `generate()`: `num_beams=5`, `num_return_sequences=3`, …

    Returns:
        For a text a list of `{"translation_text": str}`, one for each returned sequence; for several texts a list (for
        a generator or a column an iterator) of such lists. With `return_scores` each has also `"score"` and
        `"word_scores"` (see [`~hf_ngsan.models.text_scores.TextScores`]).

    Raises:
        ValueError: an input that is no text, or has no word; a model of another package.
    """

    def __init__(self, model: Any, **kwargs: Any) -> None:
        refuse_models_of_others("translation", model)
        super().__init__(model, **kwargs)

    def _forward(  # type: ignore[override]
        self, input_tensors: dict, return_scores: bool = False, **generate_kwargs: Any
    ) -> dict:
        outputs = super()._forward(input_tensors, **generate_kwargs)
        if return_scores:
            number, each, _ = outputs["sequences"].shape
            scores = text_scores(self.model, self.tokenizer, input_tensors, outputs["sequences"].flatten(0, 1))
            outputs["scores"] = [{"of_each": scores[row * each : (row + 1) * each]} for row in range(number)]
        return outputs

    def postprocess(self, model_outputs: dict, **postprocess_parameters: Any) -> list[dict]:
        answers = super().postprocess(model_outputs)
        scores = model_outputs.get("scores")
        if scores is not None:
            [scores] = scores if isinstance(scores, list) else [scores]  # transformers takes a batch apart
            for answer, (score, words) in zip(answers, scores["of_each"], strict=True):
                answer.update(score=score, word_scores=[tuple(word) for word in words])
        return answers


__all__ = ["CaptioningPipeline", "ImageTextToTextPipeline", "TranslationPipeline", "VisualQuestionAnsweringPipeline"]
