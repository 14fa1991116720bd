"""`pipeline("image-to-text")` for captioners of transformers."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from transformers.feature_extraction_utils import BatchFeature

from ..ground.bounds import DEFAULT_CAPTION_LENGTH
from ..models.decoding import with_search
from ..models.images import load_image
from ..models.pipeline_image_to_text import Captioned, ImageToTextPipeline, unread
from ..models.pipeline_items import MAX_WORD_LENGTH, Batch, Item, ItemReader, SettingsError, unreadable
from ..models.processing_captioning import check_text
from ..models.text_scores import text_scores
from .captioners import Guest, batches, guest_of
from .checkpoints import whole_processor
from .dual_encoders import at_work

LENGTHS = {"max_new_tokens", "max_length", "generation_config"}


@dataclass
class GuestReader(ItemReader):
    """Reads images, and makes the inputs of each by itself: processors differ in how they make a batch."""

    guest: Any = None

    @property
    def takes_images(self) -> bool:
        return True

    def check_prefix(self, text: str, name: str) -> None:
        check_text(text, name)
        longest = getattr(self.config.get_text_config(decoder=True), "max_position_embeddings", None)
        if longest and (len(text) > longest * MAX_WORD_LENGTH or self.number_of_words(text) >= longest):
            raise ValueError(f"{name} is longer than what this model reads: {longest - 1} tokens.")

    def number_of_words(self, text: str) -> int:
        return len(self.processor.tokenizer(text, add_special_tokens=False)["input_ids"])

    def read_features(self, item: Item, source: Any) -> None:
        raise ValueError(f"This {self.config.model_type} model takes images, not visual_features; give an image.")

    def read_image(self, item: Item, source: Any) -> None:
        if source.get("regions") is not None or source.get("visual_boxes") is not None:
            raise SettingsError(f"This {self.config.model_type} model takes whole images; leave out their regions.")
        image = load_image(source["image"], item.name)
        try:
            item.pixels = self.guest.inputs(image, item.text)
        except Exception as error:  # each processor has its own
            raise unreadable(item.name, error, "cannot be made into inputs") from error

    def collate(self, items: list[Item]) -> Batch:
        readable = [position for position, item in enumerate(items) if item.error is None]
        inputs: list[Any] = [items[position].pixels for position in readable]
        groups = [([readable[place] for place in places], together) for places, together in batches(inputs)]
        for item in items:
            item.pixels = None
        return Batch(items, groups)


class GuestImageToTextPipeline(ImageToTextPipeline):
    r"""Captions images with a captioner of transformers: BLIP, GIT, ViT-GPT2, Florence-2, models that chat, ...

    Inputs and outputs are those of [`ImageToTextPipeline`], without features, regions, attention, visualness and
    confidence.
    Captions are those of the model's own `generate` with the same arguments.

    Call arguments:
        inputs, or images: one image or several; mappings with `image` and, if wanted, `text`.
        text (`str` or `list[str]`, *optional*): the beginning of every caption, or for models that take prompts the
            prompt, such as `"<DETAILED_CAPTION>"` of Florence-2 or a question to a model that chats.
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
        self, batch: Batch, on_error: str = "raise", return_scores: bool = False, **generate_kwargs: Any
    ) -> list[Captioned]:
        for name in ("return_attention", "return_visualness", "return_confidence"):
            if generate_kwargs.pop(name, False):
                raise ValueError(
                    f"{name}=True needs a captioner of hf-ngsan; this is a {self.model.config.model_type} model."
                )
        captioned = unread(batch.items, "generated_text", on_error)
        for positions, inputs in batch.groups:
            inputs, sequences = generated(self.guest, inputs, **generate_kwargs)
            answers: list[dict] = [{"generated_text": text} for text in self.guest.decode(sequences, inputs)]
            if return_scores:
                scores = text_scores(self.model, self.guest.tokenizer, inputs, sequences)
                for answer, of_text in zip(answers, scores, strict=True):
                    answer.update(score=of_text.score, word_scores=of_text.words)
            each = len(answers) // len(positions)
            for row, position in enumerate(positions):
                captioned[position] = Captioned(answers[row * each : (row + 1) * each])
        return [captioned[position] for position in range(len(batch.items))]


def generated(guest: Guest, inputs: BatchFeature, **generate_arguments: Any) -> tuple[BatchFeature, torch.Tensor]:
    """Returns inputs of the same shapes on the model's device, and the sequences that `generate` makes of them."""
    settings = guest.model.generation_config
    if "generation_config" not in generate_arguments:  # of BLIP, the part that writes has none of its own
        own = {name: getattr(settings, name) for name in ("num_beams", "length_penalty", "max_new_tokens")}
        if "max_length" in generate_arguments:
            del own["max_new_tokens"]
        generate_arguments = {**{name: one for name, one in own.items() if one is not None}, **generate_arguments}
    if not (LENGTHS & generate_arguments.keys() or settings.max_new_tokens or settings.max_length):
        # generate() would take the same, and warn at every call
        generate_arguments["max_new_tokens"] = DEFAULT_CAPTION_LENGTH
    inputs = inputs.to(guest.model.device, guest.model.dtype)
    model: Any = guest.model
    with at_work(guest):
        found = model.generate(**inputs, **with_search(generate_arguments, guest.processor))
    return inputs, getattr(found, "sequences", found)


def caption_images_of(
    guest: Guest, images: Sequence[Any], texts: Sequence[str] | None, **generate_arguments: Any
) -> list[str]:
    """Returns a caption for each image.

    Args:
        guest: in evaluation mode.
        images: what [`~hf_ngsan.models.images.load_image`] reads.
        texts: one for each image, see [`Guest.inputs`]; `None` for the default.
        generate_arguments: of the model's `generate`, which returns one sequence for each image.
    """
    texts = [""] * len(images) if texts is None else texts
    made = [guest.inputs(load_image(image), text) for image, text in zip(images, texts, strict=True)]
    captions: dict[int, str] = {}
    for places, together in batches(made):
        inputs, sequences = generated(guest, together, **generate_arguments)
        captions |= dict(zip(places, guest.decode(sequences, inputs), strict=True))
    return [captions[place] for place in range(len(images))]
