"""Dual encoders of transformers: how images and texts become inputs, and how features become embeddings.

The default serves every model with `get_image_features` and `get_text_features`. A family that differs has a class of a
few lines, which [`~hf_ngsan.guests.register_guest`] adds:

    class Lowercase(DualEncoder):
        def text_inputs(self, texts):
            return super().text_inputs([text.lower() for text in texts])

    register_guest("clip", Lowercase)
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch.nn.functional import normalize
from transformers import BaseImageProcessor, PreTrainedModel

from ..auto import own_model_types
from ..data.vocabulary import with_words
from ..models.images import load_image


class DualEncoder:
    """A dual encoder of transformers with its processor; the description of every family without a class of its own.

    Class attributes:
        padding: of texts, as tokenizers take it.

    Args:
        model: in evaluation mode.
        processor: with `image_processor` and `tokenizer`.
    """

    padding: ClassVar[str] = "longest"

    def __init__(self, model: PreTrainedModel, processor: Any) -> None:
        self.model: Any = model
        self.processor = processor

    @property
    def image_processor(self) -> BaseImageProcessor | None:
        return self.processor.image_processor

    @property
    def longest_text(self) -> int:
        """Tokens that the text encoder takes, special ones included."""
        text = self.model.config.get_text_config()
        return min(self.processor.tokenizer.model_max_length, getattr(text, "max_position_embeddings", 2**31))

    @property
    def dimension(self) -> int:
        """Of embeddings."""
        return self.embed_texts(self.text_inputs(["a"])).shape[-1]

    def lengths(self, texts: Sequence[str]) -> list[int]:
        """Returns the numbers of tokens of texts, special ones included."""
        ids = self.processor.tokenizer(list(texts), truncation=False, verbose=False)["input_ids"]
        return [len(of_text) for of_text in ids]

    def image_inputs(self, images: Sequence[Any]) -> dict[str, torch.Tensor]:
        """Returns the inputs of images, which are what [`~hf_ngsan.models.images.load_image`] reads."""
        return dict(self.processor.image_processor(images=list(map(load_image, images)), return_tensors="pt"))

    def text_inputs(self, texts: Sequence[str]) -> dict[str, torch.Tensor]:
        """Returns the inputs of texts; those that are longer than [`longest_text`] are cut."""
        return dict(
            self.processor.tokenizer(
                list(texts), padding=self.padding, truncation=True, max_length=self.longest_text, return_tensors="pt"
            )
        )

    def embed_images(self, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Returns embeddings of images, float32 `(images, dimension)` of length 1, with a graph where one is built."""
        return self.embedded(self.model.get_image_features, inputs)

    def embed_texts(self, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        """Returns embeddings of texts, float32 `(texts, dimension)` of length 1, with a graph where one is built."""
        return self.embedded(self.model.get_text_features, inputs)

    def embedded(self, features_of: Callable, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        parameters = inspect.signature(features_of).parameters.values()
        named = {one.name for one in parameters if one.kind is not one.VAR_KEYWORD} or inputs.keys()
        features = features_of(**{name: self.placed(value) for name, value in inputs.items() if name in named})
        pooled = getattr(features, "pooler_output", features)
        if not torch.is_tensor(pooled):  # BLIP-2 has both functions and no space of images and texts
            raise ValueError(
                f"A {type(self.model).__name__} has no common space of images and texts; give another model."
            )
        return normalize(pooled.float(), dim=-1)

    def placed(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns an input on the device of the model, numbers with its precision."""
        return tensor.to(self.model.device, self.model.dtype if tensor.is_floating_point() else None)


class PaddedTexts(DualEncoder):
    """SigLIP (Zhai et al. 2023), SigLIP 2 and ALIGN were trained with texts that are all padded to one length."""

    padding = "max_length"

    @property
    def longest_text(self) -> int:
        return min(super().longest_text, 64)


class RobertaTexts(DualEncoder):
    """AltCLIP (Chen et al. 2022), whose text encoder counts positions from that of the padding token on."""

    @property
    def longest_text(self) -> int:
        return super().longest_text - self.model.config.get_text_config().pad_token_id - 1


class OwnDualEncoder(DualEncoder):
    """A dual encoder of this package, whose embeddings have the length 1; it may take visual features of images."""

    @property
    def image_processor(self) -> Any:
        return None if self.model.vision is None else self.processor.image_processor

    @property
    def longest_text(self) -> int:
        return self.processor.tokenizer.model_max_length

    @property
    def dimension(self) -> int:
        return self.model.config.projection_dim

    def image_inputs(self, images: Sequence[Any]) -> dict[str, torch.Tensor]:
        return dict(self.processor(images=list(map(load_image, images))))

    def text_inputs(self, texts: Sequence[str]) -> dict[str, torch.Tensor]:
        return dict(self.processor(text=with_words(self.processor.tokenizer, texts), truncation=True))

    def embedded(self, features_of: Any, inputs: Mapping[str, torch.Tensor]) -> torch.Tensor:
        return features_of(
            **{name: value.to(self.model.device) for name, value in inputs.items()}
        ).pooler_output.float()


DUAL_ENCODERS: dict[str, type[DualEncoder]] = {
    "siglip": PaddedTexts,
    "siglip2": PaddedTexts,
    "align": PaddedTexts,
    "altclip": RobertaTexts,
}
"""Descriptions by model type."""


def dual_encoder_of(model: PreTrainedModel, processor: Any) -> DualEncoder:
    """Returns the description of a dual encoder, of transformers or of this package, exported or not."""
    if (exported := getattr(model, "description", None)) is not None:
        return exported(model, processor)
    model_type = model.config.model_type
    default = OwnDualEncoder if model_type in own_model_types() else DualEncoder
    return DUAL_ENCODERS.get(model_type, default)(model, processor)
