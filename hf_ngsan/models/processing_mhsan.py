"""Processor of the dual encoder MHSAN: converts images or visual features and texts to model inputs."""

from collections.abc import Sequence
from typing import Any

from transformers.feature_extraction_utils import BatchFeature
from transformers.processing_utils import ProcessorMixin

from .processing_captioning import TOKENIZING, Arrays, CaptioningProcessor, pad_visual_inputs


class MHSANProcessor(CaptioningProcessor):
    """Converts images to pixels, pads visual features and boxes, and tokenizes texts with any tokenizer."""

    text_kwargs = {"padding": True, "return_token_type_ids": False}
    inputs_behind_boxes = ("visual_attention_mask", "input_ids", "attention_mask")

    def __call__(  # type: ignore[override]
        self,
        images: Any = None,
        text: str | Sequence[str] | None = None,
        visual_features: Arrays | None = None,
        visual_boxes: Arrays | None = None,
        **kwargs: Any,
    ) -> BatchFeature:
        r"""
        Args:
            images (*optional*): one or several images of any kind that `image_processing_captioning.load_image` reads.
            text (`str` or `list[str]`, *optional*): captions or queries.
            visual_features, visual_boxes, kwargs: as for [`~processing_captioning.CaptioningProcessor.__call__`].

        Returns:
            `BatchFeature` as there; `visual_features` come with `visual_attention_mask` `(B, N)`, and text becomes
            `input_ids` and `attention_mask` `(M, T)`.
        """
        if visual_boxes is not None and visual_features is None:
            raise ValueError("visual_boxes need visual_features; pass both.")
        kwargs.setdefault("return_tensors", "pt")
        data: dict[str, Any] = pad_visual_inputs(visual_features, visual_boxes)
        if data:
            data["visual_attention_mask"] = data.pop("attention_mask")
        if images is not None:
            data.update(ProcessorMixin.__call__(self, images=self.read_images(images), **kwargs))
        if text is not None:
            data.update(self.encoded_texts(text, kwargs))
        if not data:
            raise ValueError("There is nothing to process: pass images, visual_features or text.")
        return BatchFeature(data, tensor_type="np" if kwargs["return_tensors"] == "np" else None)

    def encoded_texts(self, text: str | Sequence[str], kwargs: dict) -> BatchFeature:
        """Tokenizes texts into `input_ids` and `attention_mask`."""
        texts = [text] if isinstance(text, str) else list(text)
        with TOKENIZING:
            settings = (self.text_kwargs, kwargs, kwargs.get("text_kwargs", {}))
            self.check_lengths(texts, cut=any(options.get("truncation") for options in settings))
            encoded = ProcessorMixin.__call__(self, text=texts, **kwargs)
            self.tokenizer.backend_tokenizer.no_truncation()  # a saved one may truncate by default
            return encoded

    def check_lengths(self, texts: list[str], cut: bool) -> None:
        """Raises a ValueError for a text without words, and unless `cut`, for a text that is too long."""
        longest = self.tokenizer.model_max_length
        words = self.tokenizer(texts, add_special_tokens=False, verbose=False)["input_ids"]
        special = self.tokenizer.num_special_tokens_to_add()
        for index, ids in enumerate(words):
            if not ids:
                raise ValueError(f"Text {index}, {texts[index]!r:.40}, has no words.")
            if len(ids) + special > longest and not cut:
                raise ValueError(f"Text {index} has {len(ids) + special} tokens, over {longest}; use truncation=True.")


__all__ = ["MHSANProcessor"]
