"""`pipeline("image-to-text")` in the checkpoint of a captioner: captions for images or visual features.

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

from .captioning import mask_after_eos


class ImageToTextPipeline(Pipeline):
    r"""Captions images; the pipeline of the package hf-ngsan also has attention maps, word scores and confidence.

    Call arguments:
        inputs: an image (path, URL, `data:` URL or Pillow image), for a captioner with a vision encoder; a mapping with
            `image` and optionally `visual_boxes` `(num_regions, 4)`; for a captioner of clips, a video file, or a
            mapping with `video`, or with `frames`, a list of images; or a mapping with `visual_features` `(num_regions,
            visual_feature_size)` and, for a model with geometry, `visual_boxes`, such as a row of a dataset. Several
            inputs are a list, generator, column or dataset of these.
        text (`str`, *optional*): beginning of every caption; `"text"` in an input takes precedence.
        return_scores (`bool`, defaults to `False`): whether to return the log-probability of each caption.
        generate_kwargs (`dict`, *optional*) or any argument of `generate()`: `num_beams=5`, `num_return_sequences=3`, …

    Returns:
        For one input, a list of `{"generated_text": str}`, one for each returned sequence; for a list of inputs, a list
        of such lists; for other collections, an iterator. With `return_scores`, each dict has `"score"`, the mean
        log-probability of the caption's tokens in nats, including the end token.
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
        self.tokenizer = processor.tokenizer  # transformers needs it for batches

    def _sanitize_parameters(
        self, text: str | None = None, generate_kwargs: dict | None = None, **kwargs: Any
    ) -> tuple[dict, dict, dict]:
        return {} if text is None else {"text": text}, {**(generate_kwargs or {}), **kwargs}, {}

    def __call__(self, inputs: Any, **kwargs: Any) -> Any:  # type: ignore[override]
        if isinstance(inputs, Iterable) and not isinstance(inputs, (str, Mapping, list, Dataset)):
            inputs = (item for item in inputs)  # a column or dataset of another library; transformers streams it
        return super().__call__(inputs, **kwargs)

    def save_pretrained(self, save_directory: Any, **kwargs: Any) -> None:
        """Saves the model and its processor, with their code if they were loaded with it."""
        self.model.save_pretrained(save_directory, **kwargs)
        self.processor.save_pretrained(save_directory, **kwargs)

    def preprocess(self, input_: Any, text: str = "") -> dict:  # type: ignore[override]
        """Reads an input; returns the arguments of the processor."""
        row = input_ if isinstance(input_, Mapping) else {"image": input_}
        text = row.get("text") or text
        if unknown := self.processor.unknown_words(text):
            raise ValueError(f"The text has words outside the captioner's vocabulary: {', '.join(unknown)}.")
        return {"text": text, **self.read(row)}

    def read(self, row: Mapping[str, Any]) -> dict:
        names = [name for name in ("visual_features", "visual_boxes") if row.get(name) is not None]
        item: dict[str, Any] = {name: np.asarray(row[name], dtype=np.float32) for name in names}
        if "visual_features" in item:
            return item
        if getattr(getattr(self.model.config, "vision_config", None), "kind", None) == "frames":
            item["videos"] = tuple(self.processor.read_clip(row))
        else:
            [item["images"]] = self.processor.read_images(row["image"], draft=True)
        return item

    def make_batch(self, items: Mapping[str, Any]) -> Any:
        """Returns model inputs from the processor arguments of one input, or from lists for several inputs."""
        batch = {name: value if isinstance(value, list) else [value] for name, value in items.items()}
        return self.processor(**batch).to(self.device)

    def _forward(  # type: ignore[override]
        self, input_tensors: dict, return_scores: bool = False, **generate_kwargs: Any
    ) -> dict[str, torch.Tensor]:
        number = len(input_tensors["text"]) if isinstance(input_tensors["text"], list) else 1
        if return_scores:
            generate_kwargs |= {"return_dict_in_generate": True, "output_logits": True}
        generated = self.model.generate(**self.make_batch(input_tensors), **generate_kwargs)
        sequences = getattr(generated, "sequences", generated)
        outputs = {"sequences": sequences.reshape(number, -1, sequences.shape[-1])}
        if return_scores:
            beams = getattr(generated, "beam_indices", None)
            values = self.model.compute_transition_scores(sequences, generated.logits, beams, normalize_logits=True)
            is_token = ~mask_after_eos(sequences[:, -values.shape[1] :], self.model.generation_config.eos_token_id)
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
