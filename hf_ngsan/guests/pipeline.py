"""`pipeline("image-to-text")` for captioners of transformers itself."""

from dataclasses import dataclass
from typing import Any

from transformers.feature_extraction_utils import BatchFeature

from ..models.images import ImageError, load_image, reason, titled
from ..models.pipeline_image_to_text import Captioned, ImageToTextPipeline, unread
from ..models.pipeline_items import Batch, Item, ItemReader, SettingsError
from ..models.processing_captioning import check_text
from .captioners import Guest, guest_of
from .checkpoints import whole_processor


@dataclass
class GuestReader(ItemReader):
    """Reads images, and makes inputs of those with one text together, so that no text needs padding."""

    guest: Any = None

    @property
    def takes_images(self) -> bool:
        return True

    def check_prefix(self, text: str, name: str) -> None:
        check_text(text, name)

    def read_features(self, item: Item, source: Any) -> None:
        raise ValueError(f"This {self.config.model_type} model takes images, not visual_features; give an image.")

    def read_image(self, item: Item, source: Any) -> None:
        if source.get("regions") is not None or source.get("visual_boxes") is not None:
            raise SettingsError(f"This {self.config.model_type} model takes whole images; leave out their regions.")
        item.image = load_image(source["image"], item.name)

    def collate(self, items: list[Item]) -> Batch:
        """Makes inputs of those items that could be read, in groups of one text."""
        groups: dict[str, list[int]] = {}
        for position, item in enumerate(items):
            if item.error is None:
                groups.setdefault(item.text, []).append(position)
        made = []
        for positions in groups.values():
            made += self.model_inputs_of(items, positions)
        for item in items:
            item.image = None
        return Batch(items, made)

    def model_inputs_of(self, items: list[Item], positions: list[int]) -> list[tuple[list[int], BatchFeature]]:
        """Returns positions with their inputs; an image that the processor cannot take gets an error, and no inputs."""
        chosen = [items[position] for position in positions]
        try:
            images: list[Any] = [item.image for item in chosen]
            return [(positions, self.guest.inputs(images, [item.text for item in chosen]))]
        except Exception as error:  # each processor has its own
            if len(positions) == 1:
                chosen[0].error = ImageError(f"{titled(chosen[0].name)} cannot be made into inputs: {reason(error)}")
                return []
            alone = [position for position in positions if self.model_inputs_of(items, [position])]
            if len(alone) == len(positions):
                raise
            return self.model_inputs_of(items, alone) if alone else []


class GuestImageToTextPipeline(ImageToTextPipeline):
    r"""Captions images with a captioner of transformers: BLIP, GIT, ViT-GPT2, Florence-2, models that chat, ...

    It takes images as [`ImageToTextPipeline`] does, and gives what that gives, but for attention and visualness.
    Captions are those of the model's own `generate` with the same arguments.

    Call arguments:
        inputs, or images: one image or several; mappings with `image` and, if wanted, `text`.
        text (`str` or `list[str]`, *optional*): the beginning of every caption, or what is asked of models that take
            instructions, such as `"<DETAILED_CAPTION>"` of Florence-2 or a question of models that chat.
        on_error, generate_kwargs: see [`ImageToTextPipeline`]; any argument of the model's `generate()`.

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
        super().__init__(model, processor=whole_processor(model.name_or_path, parts), **kwargs)
        self.guest: Guest = guest_of(self.model, self.processor)

    def reader(self, **preprocess_params: Any) -> GuestReader:
        return GuestReader(self.processor, self.model.config, guest=self.guest, **preprocess_params)

    def _forward(  # type: ignore[override]
        self, batch: Batch, on_error: str = "raise", **generate_kwargs: Any
    ) -> list[Captioned]:
        for name in ("return_attention", "return_visualness"):
            if generate_kwargs.pop(name, False):
                raise ValueError(f"{name}=True needs a captioner of hf-ngsan, not a {self.model.config.model_type}.")
        captioned = unread(batch.items, "generated_text", on_error)
        for positions, inputs in batch.groups:
            found = self.model.generate(**inputs.to(self.device), **generate_kwargs)
            texts = self.guest.decode(getattr(found, "sequences", found), inputs)
            each = len(texts) // len(positions)
            for row, position in enumerate(positions):
                answers = [{"generated_text": text} for text in texts[row * each : (row + 1) * each]]
                captioned[position] = Captioned(answers)
        return [captioned[position] for position in range(len(batch.items))]
