"""The training config of a translator: its own settings beside those of every task."""

from dataclasses import dataclass, field
from typing import ClassVar

from ...data.vocabulary import MIN_SUBWORDS
from ...io.bounds import MAX_CAPTION_LENGTH, MAX_CAPTIONS, MAX_VOCABULARY
from ...training.recipe import Recipe
from ...training.settings import DataSettings, EvaluationSettings, TrainingSettings, another_default, setting


@dataclass(frozen=True)
class TranslationDataSettings(DataSettings):
    """Sentences for training, and their subwords."""

    spec: str = another_default(DataSettings, "spec", "parallel:data,source=en,target=de")
    vocab_size: int = setting(
        10_000,
        "subwords that both languages share, special tokens included; fewer if the training sentences are few",
        minimum=MIN_SUBWORDS,
        maximum=MAX_VOCABULARY,
    )
    max_length: int = setting(
        256,
        "longest sentence in tokens; pairs with a longer one are not trained on, and no longer one is translated",
        minimum=2,
        maximum=MAX_CAPTION_LENGTH,
    )


@dataclass(frozen=True)
class TranslationTrainingSettings(TrainingSettings):
    """Optimization; the defaults are those of Transformer-Base (Vaswani et al. 2017)."""

    learning_rate: float = another_default(TrainingSettings, "learning_rate", 7e-4)
    schedule: str = another_default(TrainingSettings, "schedule", "inverse_sqrt")
    warmup_updates: int | None = another_default(TrainingSettings, "warmup_updates", 4000)
    batch_tokens: int | None = setting(
        4096,
        "tokens per update, padding included, on the side that has more; rows of about one length come together; null "
        "= training.batch_size pairs",
        minimum=1,
    )
    adam_epsilon: float = another_default(TrainingSettings, "adam_epsilon", 1e-9)
    label_smoothing: float = setting(
        0.1, "share of the target spread evenly over the vocabulary", minimum=0.0, below=1.0
    )


@dataclass(frozen=True)
class TranslationEvaluationSettings(EvaluationSettings):
    """Generation of translations for the validation split, and the choice of the best model."""

    metric: str = setting("bleu", "score of the validation split that chooses the best model: bleu or chrf")
    num_beams: int = setting(4, "width of the beam search", minimum=1, maximum=MAX_CAPTIONS)
    max_new_tokens: int = setting(
        128, "longest translation in tokens, its end included", minimum=1, maximum=MAX_CAPTION_LENGTH
    )
    length_penalty: float = setting(0.6, "beams are ranked by log-probability / length ** this")


@dataclass(frozen=True)
class TranslationRecipe(Recipe):
    """The training config of a translator.

    Attributes:
        model: `model_type` and the fields of its configuration; or `init_from`, a folder of a trained translator, and
            the configuration fields to change in it. `vocab_size` follows from the data.
        data, training, evaluation: the other sections.
    """

    default_model_type: ClassVar[str] = "nsa_transformer"

    data: TranslationDataSettings = field(default_factory=TranslationDataSettings)
    training: TranslationTrainingSettings = field(default_factory=TranslationTrainingSettings)
    evaluation: TranslationEvaluationSettings = field(default_factory=TranslationEvaluationSettings)
