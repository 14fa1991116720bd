"""The training config of a model that answers questions: its own settings beside those of every task."""

from dataclasses import dataclass, field
from typing import ClassVar

from ...io.bounds import MAX_CAPTION_LENGTH
from ...training.recipe import Recipe
from ...training.settings import DataSettings, EvaluationSettings, TrainingSettings, another_default, setting
from ..caption_rows import CaptioningDataSettings


@dataclass(frozen=True)
class QuestionDataSettings(DataSettings):
    """Questions, words and answers for training."""

    min_word_count: int = setting(1, "words seen less often in the training questions are unknown words", minimum=1)
    max_question_length: int = setting(
        14, "longest question in words; longer ones are cut", minimum=1, maximum=MAX_CAPTION_LENGTH
    )
    min_answer_count: int = setting(
        9, "answers that are the most common one of fewer training questions cannot be given", minimum=1
    )
    word_vectors: str | None = setting(
        None,
        "file that word vectors begin with, such as GloVe: .txt, a word and its numbers a line, or .npy with "
        "data.dictionary; null = random ones",
    )
    dictionary: str | None = setting(None, "words of data.word_vectors, where that is an .npy file, one a line")
    image_size: int | None = another_default(CaptioningDataSettings, "image_size", None)


@dataclass(frozen=True)
class QuestionTrainingSettings(TrainingSettings):
    """Optimization."""

    train_word_vectors: bool = setting(True, "whether word vectors are trained; false keeps those of a file")


@dataclass(frozen=True)
class QuestionEvaluationSettings(EvaluationSettings):
    """Evaluation and the choice of the best model."""

    metric: str = another_default(EvaluationSettings, "metric", "accuracy")


@dataclass(frozen=True)
class VisualQuestionAnsweringRecipe(Recipe):
    """The training config of a model that answers questions.

    Attributes:
        model: `model_type` and the fields of its configuration; or `init_from`, a folder of a trained model, and the
            configuration fields to change in it. Words, answers and `visual_feature_size` follow from the data.
        data, training, evaluation: the other sections.
    """

    default_model_type: ClassVar[str] = "mcan"

    data: QuestionDataSettings = field(default_factory=QuestionDataSettings)
    training: QuestionTrainingSettings = field(default_factory=QuestionTrainingSettings)
    evaluation: QuestionEvaluationSettings = field(default_factory=QuestionEvaluationSettings)
