"""The training config of a dual encoder: its own settings beside those of every task."""

from dataclasses import dataclass, field
from typing import ClassVar

from ...io.bounds import MAX_CAPTION_LENGTH
from ...training.objectives.contrastive import ContrastiveSettings
from ...training.recipe import Recipe
from ...training.settings import EvaluationSettings, ScheduleSettings, TrainingSettings, another_default, setting
from ..caption_rows import CaptioningDataSettings
from ..image_augmentation import AugmentationSettings


@dataclass(frozen=True)
class RetrievalDataSettings(CaptioningDataSettings):
    """Images, words and captions for training."""

    captions_per_image: int = another_default(CaptioningDataSettings, "captions_per_image", 1)
    max_caption_length: int = setting(
        40, "longest training caption in tokens; longer ones are cut", minimum=2, maximum=MAX_CAPTION_LENGTH
    )
    word_vectors: str | None = setting(
        None,
        "file that word vectors begin with: .txt, a word and its numbers a line, or .npy with data.dictionary; null = "
        "random ones",
    )
    dictionary: str | None = setting(None, "words of data.word_vectors, where that is an .npy file, one a line")


@dataclass(frozen=True)
class RetrievalTrainingSettings(TrainingSettings):
    """Optimization; the schedule is for joint training."""

    stage: str = setting(
        "joint",
        "joint = all weights at once, staged = the last image layer, then the text encoder too, then everything, each "
        "with a section of its own",
        choices=("joint", "staged"),
    )
    own_loss: bool = setting(
        True, "models of transformers: their own loss, over softmax or sigmoid; false = that of section contrastive"
    )
    train_word_vectors: bool = setting(True, "whether word vectors are trained; false keeps those of a file")
    text_learning_rate: float | None = setting(
        None, "peak learning rate of a text encoder of transformers; null = learning_rate", minimum=0.0
    )


@dataclass(frozen=True)
class ProjectionStage(ScheduleSettings):
    """Stage 1 of Park et al. 2020, section 3.5: only the last projection of the image encoder."""

    epochs: int = another_default(ScheduleSettings, "epochs", 4)
    learning_rate: float = another_default(ScheduleSettings, "learning_rate", 0.005)
    schedule: str = another_default(ScheduleSettings, "schedule", "constant")
    warmup_epochs: int = another_default(ScheduleSettings, "warmup_epochs", 0)


@dataclass(frozen=True)
class TextStage(ProjectionStage):
    """Stage 2: also the text encoder."""

    epochs: int = another_default(ScheduleSettings, "epochs", 15)
    learning_rate: float = another_default(ScheduleSettings, "learning_rate", 0.0005)


@dataclass(frozen=True)
class ImageStage(ProjectionStage):
    """Stage 3: everything, the vision encoder included."""

    epochs: int = another_default(ScheduleSettings, "epochs", 40)
    learning_rate: float = another_default(ScheduleSettings, "learning_rate", 0.00005)


@dataclass(frozen=True)
class RetrievalContrastiveSettings(ContrastiveSettings):
    """Comparison of images and captions."""

    diversity_weight: float = another_default(ContrastiveSettings, "diversity_weight", 0.1)


@dataclass(frozen=True)
class RetrievalEvaluationSettings(EvaluationSettings):
    """Evaluation and the choice of the best model."""

    metric: str = setting("rsum", "score of the validation split that chooses the best model")
    folds: int = setting(
        1, "equal parts of the split whose scores are averaged; 5 on 5,000 images is the 1K protocol", minimum=1
    )


@dataclass(frozen=True)
class RetrievalRecipe(Recipe):
    """The training config of a dual encoder.

    Attributes:
        model: `model_type` and the fields of its configuration; or `init_from`, a folder of a trained dual encoder, and
            the configuration fields to change in it. The vocabulary and `visual_feature_size` follow from the data, the
            loss from section `contrastive`.
        data, augmentation, contrastive, training, projection_stage, text_stage, image_stage, evaluation: the other
            sections.
    """

    default_model_type: ClassVar[str] = "mhsan"

    data: RetrievalDataSettings = field(default_factory=RetrievalDataSettings)
    augmentation: AugmentationSettings = field(default_factory=AugmentationSettings)
    contrastive: RetrievalContrastiveSettings = field(default_factory=RetrievalContrastiveSettings)
    training: RetrievalTrainingSettings = field(default_factory=RetrievalTrainingSettings)
    projection_stage: ProjectionStage = field(default_factory=ProjectionStage)
    text_stage: TextStage = field(default_factory=TextStage)
    image_stage: ImageStage = field(default_factory=ImageStage)
    evaluation: RetrievalEvaluationSettings = field(default_factory=RetrievalEvaluationSettings)
