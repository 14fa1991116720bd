"""The training config of a language model: its own settings beside those of every task."""

from dataclasses import dataclass, field
from typing import ClassVar

from ...training.recipe import Recipe
from ...training.settings import EvaluationSettings, TrainingSettings, another_default, setting
from ..caption_rows import CaptionDataSettings


@dataclass(frozen=True)
class LanguageModelingTrainingSettings(TrainingSettings):
    """Optimization."""

    label_smoothing: float = setting(
        0.0, "share of the target spread evenly over the vocabulary", minimum=0.0, below=1.0
    )


@dataclass(frozen=True)
class LanguageModelingEvaluationSettings(EvaluationSettings):
    """Evaluation and the choice of the best model."""

    metric: str = another_default(EvaluationSettings, "metric", "perplexity")


@dataclass(frozen=True)
class LanguageModelingRecipe(Recipe):
    """The training config of a language model.

    Attributes:
        model: `model_type` and the fields of its configuration, `pretrained_text_encoder` among them; or `init_from`, a
            folder of a trained language model. `vocab_size` follows from the captions.
        data, training, evaluation: the other sections.
    """

    default_model_type: ClassVar[str] = "rstnet_language_model"

    data: CaptionDataSettings = field(default_factory=CaptionDataSettings)
    training: LanguageModelingTrainingSettings = field(default_factory=LanguageModelingTrainingSettings)
    evaluation: LanguageModelingEvaluationSettings = field(default_factory=LanguageModelingEvaluationSettings)
