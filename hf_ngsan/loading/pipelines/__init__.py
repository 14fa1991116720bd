"""Pipelines of `pipeline()` while this package is imported: its own for its own models, else transformers'."""

from typing import Any

from transformers.pipelines.image_text_to_text import ImageTextToTextPipeline as StockPipeline

from ...registry import own_model_types
from .captioning import CaptioningPipeline
from .question_answering import VisualQuestionAnsweringPipeline
from .translation import TranslationPipeline

ImageToTextPipeline = CaptioningPipeline  # its public name, that of the task


class ImageTextToTextPipeline(StockPipeline):
    """Makes a [`CaptioningPipeline`] for this package's captioners, and transformers' own for every other model."""

    def __new__(cls, model: Any, **kwargs: Any) -> Any:
        is_own = model.config.model_type in own_model_types("captioning")
        return (CaptioningPipeline if is_own else StockPipeline)(model, **kwargs)


__all__ = ["CaptioningPipeline", "ImageTextToTextPipeline", "TranslationPipeline", "VisualQuestionAnsweringPipeline"]
