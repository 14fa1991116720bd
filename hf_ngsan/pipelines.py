"""What `pipeline("image-to-text")` and `pipeline("image-text-to-text")` build while this package is imported."""

from typing import Any

from transformers.pipelines.image_text_to_text import ImageTextToTextPipeline as StockPipeline

from .auto import model_types_of
from .models.pipeline_image_to_text import ImageToTextPipeline


class ImageTextToTextPipeline(StockPipeline):
    """Makes this package's pipeline for its own captioners and transformers' own for every other model."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        model = kwargs["model"] if "model" in kwargs else args[0]
        if model.config.model_type in model_types_of("captioning"):
            return ImageToTextPipeline(*args, **kwargs)
        return StockPipeline(*args, **kwargs)
