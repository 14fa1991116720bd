"""`pipeline("translation")` for this package's translators; transformers 5 has no such pipeline of its own."""

from typing import Any

from transformers.pipelines.base import Pipeline

from .text_scores import text_scores


class TranslationPipeline(Pipeline):
    r"""Translates texts with a model of `AutoModelForSeq2SeqLM` and its tokenizer.

    With this package imported, `pipeline("translation", model=DIR)` returns this pipeline for its models. A checkpoint
    with code also works without the package: `pipeline("translation", model=DIR, trust_remote_code=True)`.

    Call arguments:
        inputs: a text, or a list, generator or dataset column of texts.
        batch_size (`int`, *optional*): texts that are translated together.
        return_scores (`bool`, defaults to `False`): return how likely the model finds each translation and its words.
        generate_kwargs (`dict`, *optional*) or any argument of `generate()`: `num_beams=5`, `num_return_sequences=3`, …

    Returns:
        For a text a list of `{"translation_text": str}`, one for each returned sequence; for several texts a list (for
        a generator or a column an iterator) of such lists. With `return_scores` each has also `"score"` and
        `"word_scores"` (see [`text_scores.TextScores`]).

    Raises:
        ValueError: an input that is no text, or has no word.
    """

    model: Any
    tokenizer: Any
    _load_processor: Any = False
    _load_image_processor: Any = False
    _load_feature_extractor: Any = False
    _load_tokenizer: Any = True
    # Arguments of generate() given to the constructor are kept here, by `_sanitize_parameters`.
    _pipeline_calls_generate = False

    def _sanitize_parameters(self, generate_kwargs: dict | None = None, **kwargs: Any) -> tuple[dict, dict, dict]:
        return {}, {**(generate_kwargs or {}), **kwargs}, {}

    def preprocess(self, input_: Any, **preprocess_parameters: Any) -> Any:
        if not isinstance(input_, str) or not input_.strip():
            raise ValueError(f"{input_!r:.60} is no text with words; give texts to translate.")
        return dict(self.tokenizer(input_, return_tensors="pt"))

    def _forward(  # type: ignore[override]
        self, input_tensors: dict, return_scores: bool = False, **generate_kwargs: Any
    ) -> Any:
        number = len(input_tensors["input_ids"])
        sequences = self.model.generate(**input_tensors, **generate_kwargs)
        outputs = {"sequences": sequences.reshape(number, -1, sequences.shape[-1])}
        if return_scores:
            scores = text_scores(self.model, self.tokenizer, input_tensors, sequences)
            each = len(scores) // number
            outputs["scores"] = [scores[row * each : (row + 1) * each] for row in range(number)]
        return outputs

    def postprocess(self, model_outputs: dict, **postprocess_parameters: Any) -> list[dict]:
        [sequences] = model_outputs["sequences"]
        texts = self.tokenizer.batch_decode(sequences, skip_special_tokens=True)
        answers: list[dict] = [{"translation_text": text.strip()} for text in texts]
        scores = model_outputs.get("scores", [])
        if scores and isinstance(scores[0], list):  # of a lone text; transformers takes a batch apart
            [scores] = scores
        for answer, (score, words) in zip(answers, scores, strict=False):  # plain tuples, which transformers makes
            answer.update(score=score, word_scores=list(words))
        return answers


__all__ = ["TranslationPipeline"]
