"""How captioners of transformers are spoken to: one class a family, a default for all others.

A description says how images and texts become inputs, and how ids become captions; all else (the pipeline, the
commands, training) asks it. [`register_guest`] adds one:

    class Shouting(Guest):
        def decode(self, sequences, inputs):
            return [caption.upper() for caption in super().decode(sequences, inputs)]

    register_guest("blip", Shouting)
"""

from collections.abc import Sequence
from typing import Any, ClassVar

import torch
from PIL import Image
from transformers import PreTrainedModel
from transformers.feature_extraction_utils import BatchFeature

QUESTION = "Describe this image in one sentence."
"""For models that chat, where no prompt is given."""


class Guest:
    """A captioner of transformers with its processor; by itself the description of whatever has no other.

    Class attributes:
        default_prompt: text that goes in where none is given; `None` for none.
        begins_caption: whether a caption begins with its text, as with BLIP; else the text is an instruction.

    Args:
        model: on its device, in evaluation mode.
        processor: with `image_processor` and `tokenizer`.
    """

    default_prompt: ClassVar[str | None] = None
    begins_caption: ClassVar[bool] = True

    def __init__(self, model: PreTrainedModel, processor: Any) -> None:
        self.model, self.processor = model, processor

    @property
    def tokenizer(self) -> Any:
        return self.processor.tokenizer

    def inputs(self, images: Sequence[Image.Image], texts: Sequence[str]) -> BatchFeature:
        """Returns the arguments of `generate` for some images, each with the same text.

        Args:
            images: upright, RGB.
            texts: one an image; `""` for the default.
        """
        texts = [text or self.default_prompt or "" for text in texts]
        return self.process(list(images), texts if any(texts) else None)

    def process(self, images: list[Image.Image], texts: list[str] | None) -> BatchFeature:
        """Calls the processor; texts are `None` where the model is asked for nothing."""
        if texts is None:
            return self.processor(images=images, return_tensors="pt")
        return self.processor(images=images, text=texts, padding=True, return_tensors="pt")

    def decode(self, sequences: torch.Tensor, inputs: BatchFeature) -> list[str]:
        """Returns captions of generated ids `(rows, length)`, of which there may be several an image.

        An instruction that the ids repeat is left out.
        """
        if not self.begins_caption and "input_ids" in inputs:
            asked = inputs["input_ids"]
            asked = asked.repeat_interleave(len(sequences) // len(asked), dim=0)
            if sequences.shape[1] >= asked.shape[1] and torch.equal(sequences[:, : asked.shape[1]], asked):
                sequences = sequences[:, asked.shape[1] :]
        texts = self.tokenizer.batch_decode(sequences, skip_special_tokens=True)
        return [" ".join(text.split()) for text in texts]


class Git(Guest):
    """GIT (Wang et al. 2022): the text is the beginning of the sequence, without an end token."""

    def process(self, images: list[Image.Image], texts: list[str] | None) -> BatchFeature:
        inputs = super().process(images, None)
        if texts is not None:
            words = self.tokenizer(texts, add_special_tokens=False)["input_ids"]
            inputs["input_ids"] = torch.tensor([[self.tokenizer.cls_token_id, *ids] for ids in words])
        return inputs


class VisionEncoderDecoder(Guest):
    """Any vision encoder with any text decoder (ViT-GPT2, TrOCR): the text begins what is decoded."""

    def process(self, images: list[Image.Image], texts: list[str] | None) -> BatchFeature:
        inputs = self.processor.image_processor(images, return_tensors="pt")
        if texts is not None:
            start = self.model.generation_config.decoder_start_token_id
            words = self.tokenizer(texts, add_special_tokens=False)["input_ids"]
            inputs["decoder_input_ids"] = torch.tensor([[start, *ids] for ids in words])
        return inputs


class Florence2(Guest):
    """Florence-2 (Xiao et al. 2024): tasks are prompts, such as `<CAPTION>` and `<DETAILED_CAPTION>`."""

    default_prompt = "<CAPTION>"
    begins_caption = False


class Kosmos2(Guest):
    """Kosmos-2 (Peng et al. 2023): grounding tokens and boxes are left out of the caption."""

    default_prompt = "An image of"

    def decode(self, sequences: torch.Tensor, inputs: BatchFeature) -> list[str]:
        texts = self.tokenizer.batch_decode(sequences, skip_special_tokens=True)
        return [" ".join(self.processor.post_process_generation(text)[0].split()) for text in texts]


class PaliGemma(Guest):
    """PaliGemma (Beyer et al. 2024): the prompt names the task and the language."""

    default_prompt = "caption en"
    begins_caption = False


class Chat(Guest):
    """Models that chat (SmolVLM, Qwen-VL, LLaVA, ...), by the template of their processor: the text is a question."""

    default_prompt = QUESTION
    begins_caption = False

    def process(self, images: list[Image.Image], texts: list[str] | None) -> BatchFeature:
        chats = [
            [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": text}]}] for text in texts or []
        ]
        prompts = [self.processor.apply_chat_template(chat, add_generation_prompt=True) for chat in chats]
        return self.processor(
            images=[[image] for image in images],
            text=prompts,
            padding=True,
            padding_side="left",  # words are appended on the right
            return_tensors="pt",
        )


GUESTS: dict[str, type[Guest]] = {
    "git": Git,
    "vision-encoder-decoder": VisionEncoderDecoder,
    "florence2": Florence2,
    "kosmos-2": Kosmos2,
    "paligemma": PaliGemma,
}
"""Descriptions by model type."""


def register_guest(model_type: str, description: type[Guest]) -> None:
    """Adds the description of a captioner of transformers, or puts another in place of the package's own."""
    GUESTS[model_type] = description


def guest_of(model: PreTrainedModel, processor: Any) -> Guest:
    """Returns the description of a captioner: its own, else that of models that chat, else the default."""
    chats = getattr(processor, "chat_template", None) is not None
    return GUESTS.get(model.config.model_type, Chat if chats else Guest)(model, processor)
