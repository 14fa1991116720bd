"""Processor of the NG-SAN family: visual features, boxes, captions and prefixes to model inputs."""

from collections.abc import Sequence

import numpy as np
import torch
from transformers.feature_extraction_utils import BatchFeature
from transformers.processing_utils import ProcessorMixin

from .visual_inputs import pad_visual_inputs


class NGSANProcessor(ProcessorMixin):
    """Pads visual features and boxes, tokenizes captions for training and prefixes for generation.

    Args:
        tokenizer (`PreTrainedTokenizerFast`): word-level tokenizer with pad, start, end and unknown tokens.
    """

    text_kwargs = {
        "add_special_tokens": False,
        "return_token_type_ids": False,
        "padding": True,
        "padding_side": "left",
    }

    def __init__(self, tokenizer=None, **kwargs):
        super().__init__(tokenizer, **kwargs)

    def __call__(
        self,
        images=None,
        text: str | list[str] | None = None,
        visual_features: Sequence[np.ndarray | torch.Tensor] | np.ndarray | torch.Tensor | None = None,
        visual_boxes: Sequence[np.ndarray | torch.Tensor] | np.ndarray | torch.Tensor | None = None,
        captions: str | Sequence[str | None] | Sequence[Sequence[str | None]] | None = None,
        **kwargs,
    ) -> BatchFeature:
        r"""
        Args:
            images: not taken by this processor; present because pipelines of transformers pass it.
            text (`str` or `list[str]`, *optional*): what the captions shall begin with, one prefix an image; `""` for
                none.
            visual_features (`Sequence` of arrays `(num_regions, visual_feature_size)`, *optional*): one array an image,
                or a single array for one image.
            visual_boxes (`Sequence` of arrays `(num_regions, 4)`, *optional*): `x1, y1, x2, y2` within [0, 1].
            captions (`str`, `list[str]` or `list[list[str]]`, *optional*): training captions: one an image, or C an
                image (the same C for all). `None` or `""` is a row without any label.
            kwargs: passed to the tokenizer, for `text`.

        Returns:
            `BatchFeature` of tensors: `visual_features` `(B, N, D)` float32, `visual_boxes` `(B, N, 4)`,
            `attention_mask` `(B, N)` with 1 = real; from captions `labels` `(B * C, T)`, -100 at padding; from text
            `decoder_input_ids` and `decoder_attention_mask`, padded on the left.

        Raises:
            ValueError: arrays of the wrong shape, number or content, or captions that do not fit; names the image.
        """
        if images is not None:
            raise ValueError(
                "This processor takes visual_features and visual_boxes, not images; extract features first."
            )
        data = {}
        if visual_features is not None:
            data.update(pad_visual_inputs(visual_features, visual_boxes))
        elif visual_boxes is not None:
            raise ValueError("visual_boxes were given without visual_features.")
        num_images = len(data["visual_features"]) if data else None
        if captions is not None:
            captions = [captions] if isinstance(captions, str) else captions
            if num_images not in (None, len(captions)):
                raise ValueError(f"There are visual_features of {num_images} images but captions of {len(captions)}.")
            data["labels"] = self.caption_labels(captions)
        if text is not None:
            text = [text] if isinstance(text, str) else text
            if num_images not in (None, len(text)):
                raise ValueError(f"There are visual_features of {num_images} images but text for {len(text)}.")
            start = self.tokenizer.bos_token
            prefixes = [f"{start} {prefix}".strip() for prefix in text]
            kwargs.setdefault("return_tensors", "pt")
            encoded = super().__call__(text=prefixes, **kwargs)
            data["decoder_input_ids"] = encoded["input_ids"]
            data["decoder_attention_mask"] = encoded["attention_mask"]
        if not data:
            raise ValueError("Nothing to process: give visual_features, text or captions.")
        return BatchFeature(data)

    def caption_labels(self, captions: Sequence[str | None] | Sequence[Sequence[str | None]]) -> torch.LongTensor:
        """Captions to labels `(B * C, T)`: words, the end token, then -100."""
        rows = [row if isinstance(row, (list, tuple)) else [row] for row in captions]
        if len({len(row) for row in rows}) > 1:
            raise ValueError("Every image of a batch needs the same number of captions; fill up with None.")
        flat = [caption for row in rows for caption in row]
        for index, caption in enumerate(flat):
            if not (caption is None or isinstance(caption, str)):
                raise ValueError(f"Caption {index} of the batch is {type(caption).__name__}, not a string.")
        words = self.tokenizer([caption or "" for caption in flat], add_special_tokens=False)["input_ids"]
        labels = [[*ids, self.tokenizer.eos_token_id] if ids else [] for ids in words]
        width = max(1, max(map(len, labels), default=1))
        return torch.tensor([ids + [-100] * (width - len(ids)) for ids in labels], dtype=torch.long).reshape(-1, width)

    @property
    def model_input_names(self) -> list[str]:
        return ["visual_features", "visual_boxes", "attention_mask", "decoder_input_ids", "decoder_attention_mask"]


__all__ = ["NGSANProcessor"]
