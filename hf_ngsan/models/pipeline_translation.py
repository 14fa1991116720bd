"""`pipeline("translation")` in the checkpoint of a translator; transformers 5 has no such pipeline."""

from typing import Any

from transformers.pipelines.base import Pipeline


class TranslationPipeline(Pipeline):
    """Translates texts with a model of `AutoModelForSeq2SeqLM` and its tokenizer.

    Call arguments:
        inputs: a text, or a list, generator or dataset column of texts; a text without words raises a ValueError.
        generate_kwargs (`dict`, *optional*) or any argument of `generate()`: `num_beams=5`, `num_return_sequences=3`, …

    Returns:
        For one text, a list of `{"translation_text": str}`, one for each returned sequence; for several texts, a list
        (for a generator or column, an iterator) of such lists.
    """

    model: Any
    tokenizer: Any
    _load_processor: Any = False
    _load_image_processor: Any = False
    _load_feature_extractor: Any = False
    _load_tokenizer: Any = True
    _pipeline_calls_generate = False  # `_sanitize_parameters` keeps arguments of generate() of the constructor

    def _sanitize_parameters(self, generate_kwargs: dict | None = None, **kwargs: Any) -> tuple[dict, dict, dict]:
        return {}, {**(generate_kwargs or {}), **kwargs}, {}

    def preprocess(self, input_: Any, **preprocess_parameters: Any) -> Any:
        if not isinstance(input_, str) or not input_.strip():
            raise ValueError(f"{input_!r:.60} is not a text with words; pass texts to translate.")
        return dict(self.tokenizer(input_, return_tensors="pt"))

    def _forward(self, input_tensors: dict, **generate_kwargs: Any) -> dict:  # type: ignore[override]
        sequences = self.model.generate(**input_tensors, **generate_kwargs)
        return {"sequences": sequences.reshape(len(input_tensors["input_ids"]), -1, sequences.shape[-1])}

    def postprocess(self, model_outputs: dict, **postprocess_parameters: Any) -> list[dict]:
        [sequences] = model_outputs["sequences"]
        texts = self.tokenizer.batch_decode(sequences, skip_special_tokens=True)
        return [{"translation_text": text.strip()} for text in texts]


__all__ = ["TranslationPipeline"]
