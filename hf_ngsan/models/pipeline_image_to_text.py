"""`pipeline("image-to-text")` for captioners."""

from collections.abc import Iterator, Sized

from torch.utils.data import DataLoader
from transformers.pipelines.base import Pipeline

from .attention_maps import attention_maps
from .configuration_hub import check_choice
from .pipeline_items import Batch, Item, ItemReader, Items, ItemStream, streamable


class ImageToTextPipeline(Pipeline):
    r"""Captions images.

    With a vision part the captioner takes images: paths, addresses, bytes, images of Pillow, arrays and tensors (see
    [`images.load_image`]), or mappings with `image` and, if wanted, `regions` `(num_regions, 4)` in pixels and `text`.
    Every captioner takes mappings with `visual_features` `(num_regions, visual_feature_size)` and, where the model has
    geometry, `visual_boxes` `(num_regions, 4)`. A row of a data set is such a mapping. Lists, generators, columns and
    data sets work as well; `batch_size=` decides how many are captioned together, and `num_workers=` processes read
    images ahead (one at most for a generator).

    Call arguments:
        text (`str`, *optional*): what every caption shall begin with; an input's own `"text"` comes first.
        return_attention (`bool`, defaults to `False`): tell where each word looked.
        on_error (`str`, defaults to `"raise"`): what to do about an input that cannot be read: `"raise"` an error that
            names it by its index, or `"skip"` it and go on.
        generate_kwargs (`dict`, *optional*) or any argument of `generate()`: `num_beams=5`, `max_new_tokens=30`,
            `num_return_sequences=3`, …

    Returns:
        For an input a list of `{"generated_text": str}`, one for each returned sequence; for several inputs a list (for
        a generator or a data set an iterator) of such lists. With `return_attention` each has also `"words"`, the T
        words of the caption, and `"attention"`: float32 maps `(T, height, width)` of the image (see
        [`attention_maps.attention_maps`]), or weights `(T, num_regions)` for features without an image or boxes. For an
        input that was skipped the list is `[{"generated_text": None, "error": str}]`.

    Raises:
        ValueError: an input that is no image and no such mapping, or whose arrays do not fit.
    """

    _load_processor = True
    _load_image_processor = False
    _load_feature_extractor = False
    _load_tokenizer = False
    # Arguments of generate() given to the constructor are kept here, by `_sanitize_parameters`.
    _pipeline_calls_generate = False

    def _sanitize_parameters(
        self,
        text: str | None = None,
        return_attention: bool | None = None,
        on_error: str | None = None,
        generate_kwargs: dict | None = None,
        **kwargs,
    ):
        preprocess = {} if text is None else {"text": text}
        forward = {**(generate_kwargs or {}), **kwargs}
        if return_attention is not None:
            preprocess["needs_size"] = forward["return_attention"] = return_attention
        if on_error is not None:
            check_choice("on_error", on_error, ("raise", "skip"))
            forward["on_error"] = on_error
        return preprocess, forward, {}

    def __call__(self, inputs, **kwargs):
        if isinstance(inputs, list) and not inputs:
            return []
        return super().__call__(streamable(inputs), **kwargs)

    def reader(self, **preprocess_params) -> ItemReader:
        return ItemReader(self.processor, self.model.config, **preprocess_params)

    def preprocess(self, inputs, **preprocess_params) -> Batch:
        reader = self.reader(**preprocess_params)
        return reader.collate([reader.try_to_read(lambda: inputs, "the image")])

    def run_single(self, inputs, preprocess_params, forward_params, postprocess_params):
        [answers] = super().run_single(inputs, preprocess_params, forward_params, postprocess_params)
        return answers

    def get_iterator(
        self, inputs, num_workers, batch_size, preprocess_params, forward_params, postprocess_params
    ) -> Iterator[list[dict]]:
        reader = self.reader(**preprocess_params)
        if isinstance(inputs, Sized):
            items = Items(inputs, reader)
        else:
            items, num_workers = ItemStream(inputs, reader), min(num_workers, 1)
        for batch in DataLoader(items, num_workers=num_workers, batch_size=batch_size, collate_fn=reader.collate):
            yield from self.postprocess(self.forward(batch, **forward_params), **postprocess_params)

    def _forward(
        self, batch: Batch, return_attention: bool = False, on_error: str = "raise", **generate_kwargs
    ) -> list[list[dict]]:
        answers = {}
        for position, item in enumerate(batch.items):
            if item.error is not None:
                if on_error == "raise":
                    raise item.error
                answers[position] = [{"generated_text": None, "error": str(item.error)}]
        for positions, inputs in batch.groups:
            items = [batch.items[position] for position in positions]
            found = self.caption(items, inputs.to(self.device), return_attention, generate_kwargs)
            answers.update(zip(positions, found, strict=True))
        return [answers[position] for position in range(len(batch.items))]

    def caption(self, items: list[Item], inputs, return_attention: bool, generate_kwargs: dict) -> list[list[dict]]:
        """Captions of items that have the same kinds of inputs: for each item its answers."""
        visual_names = ("pixel_values", "pixel_mask", "visual_features", "visual_boxes", "attention_mask")
        if return_attention and "pixel_values" in inputs:
            # The visual tokens are needed twice; they are made once.
            visual = {name: inputs.pop(name) for name in visual_names if name in inputs}
            inputs.update(self.model.model.look_at(**visual))
        sequences = self.model.generate(**inputs, **generate_kwargs)
        sequences = getattr(sequences, "sequences", sequences)
        texts = self.processor.batch_decode(sequences, skip_special_tokens=True)
        answers = [{"generated_text": text.strip()} for text in texts]
        each = len(answers) // len(items)
        if return_attention:
            attention = self.model.word_attention(self.processor.tokenizer, inputs, sequences)
            for index, (answer, (words, weights)) in enumerate(zip(answers, attention, strict=True)):
                row = index // each
                answer.update(words=words, attention=self.maps(weights, inputs, row, items[row].size))
        return [answers[row * each : (row + 1) * each] for row in range(len(items))]

    def maps(self, weights, inputs, row: int, size: tuple[int, int] | None):
        """Maps of the image if its size and the boxes of its visual tokens are known, else the weights."""
        if size is None or inputs.get("visual_boxes") is None:
            return weights
        boxes = inputs["visual_boxes"][row][inputs["attention_mask"][row].bool()]
        return attention_maps(weights, boxes.float().cpu().numpy(), *size)

    def postprocess(self, model_outputs: list[list[dict]]) -> list[list[dict]]:
        return model_outputs
