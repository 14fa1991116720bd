"""`pipeline("image-to-text")` for captioners."""

from collections.abc import Iterable, Mapping, Sized

import torch
from torch.utils.data import DataLoader
from transformers.pipelines.base import Pipeline
from transformers.pipelines.pt_utils import PipelineDataset, PipelineIterator


class ImageToTextPipeline(Pipeline):
    r"""Captions images given as visual features and boxes.

    An input is a mapping with `visual_features` `(num_regions, visual_feature_size)` and, where the model has geometry,
    `visual_boxes` `(num_regions, 4)`: a row of a data set is one. Lists, generators and data sets of them work as well,
    `batch_size=` decides how many are captioned together.

    Call arguments:
        text (`str`, *optional*): what every caption shall begin with; an input's own `"text"` comes first.
        generate_kwargs (`dict`, *optional*) or any argument of `generate()`: `num_beams=5`, `max_new_tokens=30`,
            `num_return_sequences=3`, …

    Returns:
        For an input a list of `{"generated_text": str}`, one for each returned sequence; for several inputs a list (for
        a generator or a data set an iterator) of such lists.

    Raises:
        ValueError: an input that is no such mapping, or whose arrays do not fit.
    """

    _load_processor = True
    _load_image_processor = False
    _load_feature_extractor = False
    _load_tokenizer = False
    # Arguments of generate() given to the constructor are kept here, by `_sanitize_parameters`.
    _pipeline_calls_generate = False

    def _sanitize_parameters(self, text: str | None = None, generate_kwargs: dict | None = None, **kwargs):
        preprocess = {} if text is None else {"text": text}
        return preprocess, {**(generate_kwargs or {}), **kwargs}, {}

    def __call__(self, inputs, **kwargs):
        if isinstance(inputs, list) and not inputs:
            return []
        # transformers streams its own data sets and generators; a `datasets.Dataset` is neither.
        if (
            not isinstance(inputs, (list, Mapping, str, bytes))
            and isinstance(inputs, Iterable)
            and isinstance(inputs, Sized)
        ):
            inputs = (row for row in inputs)
        return super().__call__(inputs, **kwargs)

    def preprocess(self, inputs: Mapping, text: str | None = None) -> dict:
        if not isinstance(inputs, Mapping) or inputs.get("visual_features") is None:
            given = f"a mapping with {sorted(inputs)}" if isinstance(inputs, Mapping) else type(inputs).__name__
            raise ValueError(
                "This captioner takes a mapping with visual_features (num_regions, visual_feature_size) and "
                f"visual_boxes (num_regions, 4); it got {given}."
            )
        return {
            "visual_features": inputs["visual_features"],
            "visual_boxes": inputs.get("visual_boxes"),
            "text": inputs.get("text") or text or "",
        }

    def get_iterator(self, inputs, num_workers, batch_size, preprocess_params, forward_params, postprocess_params):
        wrapper = PipelineDataset if isinstance(inputs, Sized) else PipelineIterator
        rows = wrapper(inputs, self.preprocess, preprocess_params)
        loader = DataLoader(rows, num_workers=num_workers, batch_size=batch_size, collate_fn=list)
        outputs = PipelineIterator(loader, self.forward, forward_params, loader_batch_size=batch_size)
        return PipelineIterator(outputs, self.postprocess, postprocess_params)

    def _forward(self, rows: dict | list[dict], **generate_kwargs) -> dict[str, torch.Tensor]:
        rows = rows if isinstance(rows, list) else [rows]
        boxes = [row["visual_boxes"] for row in rows]
        batch = self.processor(
            visual_features=[row["visual_features"] for row in rows],
            visual_boxes=None if any(box is None for box in boxes) else boxes,
            text=[row["text"] for row in rows],
        ).to(self.device)
        sequences = self.model.generate(**batch, **generate_kwargs)
        return {"sequences": sequences.reshape(len(rows), -1, sequences.shape[-1])}

    def postprocess(self, model_outputs: dict[str, torch.Tensor]) -> list[dict[str, str]]:
        texts = self.processor.batch_decode(model_outputs["sequences"][0], skip_special_tokens=True)
        return [{"generated_text": text.strip()} for text in texts]
