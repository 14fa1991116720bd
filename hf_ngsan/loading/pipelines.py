"""Pipelines of `pipeline()` while this package is imported: its own for its own models, else transformers'."""

from typing import Any

from transformers import AutoProcessor
from transformers.pipelines.image_text_to_text import ImageTextToTextPipeline as StockPipeline

from ..models.pipeline_image_to_text import ImageToTextPipeline
from ..models.pipeline_translation import TranslationPipeline as OwnTranslationPipeline
from ..models.pipeline_visual_question_answering import (
    VisualQuestionAnsweringPipeline as OwnVisualQuestionAnsweringPipeline,
)
from ..registry import own_model_types
from .engines import use_engine


class ImageTextToTextPipeline(StockPipeline):
    """Makes this package's pipeline for its own captioners and transformers' own for every other model.

    `engine` is that of [`use_engine`], for the package's own captioners.
    """

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return own_pipeline(*args, **kwargs) if is_own(*args, **kwargs) else StockPipeline(*args, **kwargs)


class CaptioningPipeline(ImageToTextPipeline):
    """Makes the pipeline that captions for this package's captioners, or that for captioners of transformers.

    `engine` is that of [`use_engine`], for the package's own captioners.
    """

    # Those that are there: checkpoints of transformers may have a tokenizer and an image processor in place of both.
    _load_processor: Any = None
    _load_tokenizer: Any = None
    _load_image_processor: Any = None

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        if not is_own(*args, **kwargs):
            from ..guests.pipeline import (
                GuestImageToTextPipeline,  # half a second, for few
            )

            return GuestImageToTextPipeline(*args, **kwargs)
        for part in ("tokenizer", "image_processor"):
            kwargs.pop(part, None)
        if kwargs.get("processor") is None:
            kwargs["processor"] = AutoProcessor.from_pretrained(kwargs.get("model", *args).name_or_path)
        return own_pipeline(*args, **kwargs)


def own_pipeline(*args: Any, engine: str = "torch", **kwargs: Any) -> ImageToTextPipeline:
    pipeline = ImageToTextPipeline(*args, **kwargs)

    def load_confidence() -> Any:
        from .confidence import Confidence  # few need it

        return Confidence.load(pipeline.model.name_or_path, pipeline.device)

    pipeline.load_confidence = load_confidence
    use_engine(pipeline.model, pipeline.processor, engine)
    return pipeline


def is_own(model: Any, *args: Any, **kwargs: Any) -> bool:
    return model.config.model_type in own_model_types("captioning")


class VisualQuestionAnsweringPipeline(OwnVisualQuestionAnsweringPipeline):
    """Makes this package's pipeline for its own models; transformers 5 has none."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        refuse_models_of_others("visual-question-answering", *args, **kwargs)
        return OwnVisualQuestionAnsweringPipeline(*args, **kwargs)


class TranslationPipeline(OwnTranslationPipeline):
    """Makes this package's pipeline for its own models; transformers 5 has none."""

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        refuse_models_of_others("translation", *args, **kwargs)
        return OwnTranslationPipeline(*args, **kwargs)


def refuse_models_of_others(removed_task: str, model: Any, *args: Any, **kwargs: Any) -> None:
    """Raises a ValueError for a model of another package."""
    if model.config.model_type not in own_model_types():
        raise ValueError(
            f"transformers 5 has no pipeline {removed_task!r}; that of hf-ngsan is for its own models, and a "
            f"{model.config.model_type} model is none of them."
        )
