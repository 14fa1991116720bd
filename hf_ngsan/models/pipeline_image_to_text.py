"""`pipeline("image-to-text")` that a captioner's checkpoint brings along: images or visual features in, captions out.

```python
captioner = pipeline("image-to-text", model="captioner", trust_remote_code=True)
captioner("photo.jpg", num_beams=3)  # [{"generated_text": "a dog jumps over a log"}]
```
"""

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch.utils.data import Dataset
from transformers.pipelines.base import Pipeline

from .captioning import behind_end


class ImageToTextPipeline(Pipeline):
    r"""Captions images; the same pipeline of the package hf-ngsan also has attention maps, word scores and confidence.

    Call arguments:
        inputs: an image (path, URL, `data:` URL or image of Pillow), for a captioner with a vision encoder; a mapping
            with `image` and, if wanted, `visual_boxes` `(num_regions, 4)`; for a captioner of clips a video file, or a
            mapping with `video` or with `frames`, a list of images; or a mapping with `visual_features` `(num_regions,
            visual_feature_size)` and, where the model has geometry, `visual_boxes`. A row of a dataset is a mapping.
            Lists, generators, columns and datasets of these are several inputs.
        text (`str`, *optional*): beginning of every caption; an input's own `"text"` has priority.
        return_scores (`bool`, defaults to `False`): return how likely the captioner finds each caption.
        generate_kwargs (`dict`, *optional*) or any argument of `generate()`: `num_beams=5`, `num_return_sequences=3`, …

    Returns:
        For an input a list of `{"generated_text": str}`, one for each returned sequence; for a list of inputs a list of
        such lists, for several others an iterator. With `return_scores` each has `"score"`, the mean log-probability of
        the caption's tokens, the end token included, in nats.
    """

    model: Any
    processor: Any
    _load_processor: Any = True
    _load_image_processor: Any = False
    _load_feature_extractor: Any = False
    _load_tokenizer: Any = False
    _pipeline_calls_generate = False  # `_sanitize_parameters` keeps arguments of generate() of the constructor

    def __init__(self, model: Any, *, processor: Any, **kwargs: Any) -> None:
        super().__init__(model, processor=processor, **kwargs)
        self.tokenizer = processor.tokenizer  # without one transformers makes no batches

    def _sanitize_parameters(
        self, text: str | None = None, generate_kwargs: dict | None = None, **kwargs: Any
    ) -> tuple[dict, dict, dict]:
        return {} if text is None else {"text": text}, {**(generate_kwargs or {}), **kwargs}, {}

    def __call__(self, inputs: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        if isinstance(inputs, Iterable) and not isinstance(inputs, (str, Mapping, list, Dataset)):
            inputs = (one for one in inputs)  # a column or a dataset of another library, which transformers streams
        return super().__call__(inputs, **kwargs)

    def save_pretrained(self, save_directory: Any, **kwargs: Any) -> None:
        """Saves the model and its processor, with their code if they were loaded with it."""
        self.model.save_pretrained(save_directory, **kwargs)
        self.processor.save_pretrained(save_directory, **kwargs)

    def preprocess(self, input_: Any, text: str = "") -> dict:  # type: ignore[override]
        """Reads an input; returns the processor's arguments for it."""
        given = input_ if isinstance(input_, Mapping) else {"image": input_}
        text = given.get("text") or text
        if unknown := self.processor.unknown_words(text):
            raise ValueError(f"The text has words that this captioner does not know: {', '.join(unknown)}.")
        return {"text": text, **self.read(given)}

    def read(self, given: Mapping[str, Any]) -> dict:
        names = [name for name in ("visual_features", "visual_boxes") if given.get(name) is not None]
        item: dict[str, Any] = {name: np.asarray(given[name], dtype=np.float32) for name in names}
        if "visual_features" in item:
            return item
        if getattr(getattr(self.model.config, "vision_config", None), "kind", None) == "frames":
            item["videos"] = tuple(self.processor.read_clip(given))
        else:
            [item["images"]] = self.processor.read_images(given["image"], draft=True)
        return item

    def make_batch(self, items: Mapping[str, Any]) -> Any:
        """Returns model inputs for the processor's arguments of one input, or for lists of those of several."""
        batch = {name: given if isinstance(given, list) else [given] for name, given in items.items()}
        return self.processor(**batch).to(self.device)

    def _forward(  # type: ignore[override]
        self, input_tensors: dict, return_scores: bool = False, **generate_kwargs: Any
    ) -> dict[str, torch.Tensor]:
        number = len(input_tensors["text"]) if isinstance(input_tensors["text"], list) else 1
        if return_scores:
            generate_kwargs |= {"return_dict_in_generate": True, "output_logits": True}
        found = self.model.generate(**self.make_batch(input_tensors), **generate_kwargs)
        sequences = getattr(found, "sequences", found)
        outputs = {"sequences": sequences.reshape(number, -1, sequences.shape[-1])}
        if return_scores:
            beams = getattr(found, "beam_indices", None)
            values = self.model.compute_transition_scores(sequences, found.logits, beams, normalize_logits=True)
            is_token = ~behind_end(sequences[:, -values.shape[1] :], self.model.generation_config.eos_token_id)
            outputs["scores"] = ((values * is_token).sum(-1) / is_token.sum(-1)).reshape(number, -1)
        return outputs

    def postprocess(self, model_outputs: dict, **postprocess_parameters: Any) -> list[dict]:
        [sequences] = model_outputs["sequences"]
        texts = self.processor.batch_decode(sequences, skip_special_tokens=True)
        if "scores" not in model_outputs:
            return [{"generated_text": text.strip()} for text in texts]
        scored = zip(texts, model_outputs["scores"][0].tolist(), strict=True)
        return [{"generated_text": text.strip(), "score": score} for text, score in scored]


__all__ = ["ImageToTextPipeline"]
