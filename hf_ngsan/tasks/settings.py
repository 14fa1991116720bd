"""The training configs of all tasks; reading them needs no torch, so a wrong key is reported immediately."""

from dataclasses import dataclass
from typing import Any, ClassVar, Self

from ..languages import UNITS
from ..training import config as base
from ..training.config import setting

CONSTANT: dict[str, Any] = {"schedule": "constant", "warmup_epochs": 0}
MIN_SUBWORDS = 4 + 256
"""Number of special tokens and bytes in every subword vocabulary."""
OF_NEW_MODELS = ["tokenizer", "min_word_count", "max_subwords", "max_question_length", "min_answer_count"]
OF_NEW_MODELS += ["word_vectors", "dictionary", "vocab_size"]
"""Keys of the section `data` without effect on a trained model, because it keeps its vocabulary."""


@dataclass(frozen=True)
class GenerationSettings(base.EvaluationSettings):
    """Generation of texts for the validation split, and the choice of the best model."""

    num_beams: int = setting(3, "number of beams", minimum=1)
    max_new_tokens: int = setting(20, "maximum tokens of a generated text, including the end token", minimum=1)
    length_penalty: float = setting(1.0, "beams are ranked by log-probability / length ** this")


@dataclass(frozen=True)
class CaptionDataSettings(base.DataSettings):
    """Words and captions for training."""

    tokenizer: str = setting("words", "units of the vocabulary; metrics count words", choices=UNITS)
    language: str = setting("en", "language of the captions, such as de or zh, also for metrics")
    min_word_count: int = setting(5, "rarer words of the training captions become the unknown word", minimum=1)
    max_subwords: int = setting(10_000, "largest vocabulary of tokenizer=subwords", minimum=100)
    captions_per_image: int = setting(5, "captions drawn per image and epoch; an image is encoded once", minimum=1)
    max_caption_length: int = setting(20, "maximum tokens of a training caption; longer ones are truncated", minimum=2)


@dataclass(frozen=True)
class CaptioningDataSettings(CaptionDataSettings):
    """Images, words and captions for training."""

    new_words: int | None = setting(2, "fine-tuning adds words that occur at least this often; null = none", minimum=1)
    image_size: int | None = setting(None, "height and width of images; null = the backbone's, or 224", minimum=8)
    num_frames: int | None = setting(None, "frames per clip read from a file; null = 8", minimum=1)
    seconds_per_frame: float | None = setting(None, "seconds of a clip per frame, instead of num_frames", minimum=0.01)


@dataclass(frozen=True)
class AugmentationSettings:
    """Random changes of the training images of a model with a vision encoder; none by default."""

    smallest_crop: float = setting(1.0, "smallest share of the area of a crop; 1 = no crops", minimum=0.01, maximum=1)
    flip: float = setting(0.0, "probability of mirroring; not with left or right in captions", minimum=0, maximum=1)
    color_jitter: float = setting(0.0, "largest change of brightness, contrast and saturation", minimum=0, below=1)
    feature_copies: bool = setting(False, "epochs use copies of features:DIR in turn (hf-ngsan extract --copies)")
    copies: int | None = setting(2, "copies that a frozen backbone encodes once; null = every epoch", minimum=1)

    @property
    def changes_images(self) -> bool:
        return self.smallest_crop < 1 or self.flip > 0 or self.color_jitter > 0


@dataclass(frozen=True)
class CaptioningTrainingSettings(base.TrainingSettings):
    """Optimization; the schedule is for teacher forcing."""

    stage: str = setting(
        "xe",
        "xe = teacher forcing, scst = self-critical, auto = both, distill = distillation",
        choices=("xe", "scst", "auto", "distill"),
    )
    label_smoothing: float | None = setting(
        None, "label smoothing; null = the model's (BLIP), else 0", minimum=0, below=1
    )
    word_dropout: float = setting(0.0, "share of previous words replaced by the unknown word", minimum=0, below=1)
    consensus_power: float = setting(0.0, "exponent of the consensus weights of captions; 0 = equal weights", minimum=0)
    teachers: tuple[str, ...] = setting((), "captioners to distill from, with the same vocabulary and features")
    teacher_weight: float = setting(0.5, "weight of the teachers in the loss", minimum=0.0, maximum=1.0)
    teacher_temperature: float = setting(1.0, "temperature of the probabilities of teachers and captioner", minimum=0.1)


@dataclass(frozen=True)
class CaptioningConfig(base.TrainingConfig):
    """The training config of a captioner; its `vocab_size` and `visual_feature_size` follow from the data."""

    default_model_type: ClassVar[str] = "ngsan"

    data: CaptioningDataSettings = CaptioningDataSettings()
    augmentation: AugmentationSettings = AugmentationSettings()
    training: CaptioningTrainingSettings = CaptioningTrainingSettings()
    evaluation: GenerationSettings = GenerationSettings(metric="cider_d")
    self_critical: base.SelfCriticalSettings = base.SelfCriticalSettings(learning_rate=5e-6, **CONSTANT)
    distillation: base.DistillationSettings = base.DistillationSettings(schedule="cosine")

    def changes_that_break_resuming(self, new: Self) -> list[str]:
        """A self-critical stage may be added to a run."""
        changed = super().changes_that_break_resuming(new)
        if (self.training.stage, new.training.stage) == ("xe", "auto"):
            changed.remove("training.stage")
        if self.training.stage == "xe":
            changed = [key for key in changed if not key.startswith("self_critical.")]
        return changed


@dataclass(frozen=True)
class LanguageModelingTrainingSettings(base.TrainingSettings):
    """Optimization."""

    label_smoothing: float = setting(0.0, "share of the target spread over the vocabulary", minimum=0.0, below=1.0)


@dataclass(frozen=True)
class LanguageModelingConfig(base.TrainingConfig):
    """The training config of a language model; `vocab_size` of its section `model` follows from the captions."""

    default_model_type: ClassVar[str] = "rstnet_language_model"

    data: CaptionDataSettings = CaptionDataSettings()
    training: LanguageModelingTrainingSettings = LanguageModelingTrainingSettings()
    evaluation: base.EvaluationSettings = base.EvaluationSettings(metric="perplexity")


@dataclass(frozen=True)
class QuestionDataSettings(base.DataSettings):
    """Questions, words and answers for training."""

    min_word_count: int = setting(1, "rarer words of the training questions become the unknown word", minimum=1)
    max_question_length: int = setting(14, "maximum words of a question; longer ones are truncated", minimum=1)
    min_answer_count: int = setting(9, "answers of fewer training questions are left out", minimum=1)
    word_vectors: str | None = setting(None, "initial word vectors: GloVe's .txt, or .npy with data.dictionary")
    dictionary: str | None = setting(None, "words of an .npy file of data.word_vectors, one per line")
    image_size: int | None = setting(None, "height and width of images; null = the backbone's, or 224", minimum=8)


@dataclass(frozen=True)
class QuestionTrainingSettings(base.TrainingSettings):
    """Optimization."""

    train_word_vectors: bool = setting(True, "whether word vectors are trained; false keeps those of a file")


@dataclass(frozen=True)
class VisualQuestionAnsweringConfig(base.TrainingConfig):
    """The training config of a VQA model; its words, answers and `visual_feature_size` follow from the data."""

    default_model_type: ClassVar[str] = "mcan"

    data: QuestionDataSettings = QuestionDataSettings()
    training: QuestionTrainingSettings = QuestionTrainingSettings()
    evaluation: base.EvaluationSettings = base.EvaluationSettings(metric="accuracy")


@dataclass(frozen=True)
class RetrievalDataSettings(CaptioningDataSettings):
    """Images, words and captions for training."""

    word_vectors: str | None = setting(None, "initial word vectors: GloVe's .txt, or .npy with data.dictionary")
    dictionary: str | None = setting(None, "words of an .npy file of data.word_vectors, one per line")


@dataclass(frozen=True)
class RetrievalTrainingSettings(base.TrainingSettings):
    """Optimization; the schedule is for joint training."""

    stage: str = setting("joint", "joint = all weights at once, staged = three stages", choices=("joint", "staged"))
    own_loss: bool = setting(True, "models of transformers: true = their loss, false = that of the section contrastive")
    train_word_vectors: bool = setting(True, "whether word vectors are trained; false keeps those of a file")
    text_learning_rate: float | None = setting(None, "peak for a text encoder; null = learning_rate", minimum=0)


@dataclass(frozen=True)
class RetrievalEvaluationSettings(base.EvaluationSettings):
    """Evaluation and the choice of the best model."""

    folds: int = setting(1, "equal parts whose scores are averaged; 5 parts of 5,000 images: 1K protocol", minimum=1)


@dataclass(frozen=True)
class RetrievalConfig(base.TrainingConfig):
    """The training config of a dual encoder; its vocabulary and `visual_feature_size` follow from the data."""

    default_model_type: ClassVar[str] = "mhsan"

    data: RetrievalDataSettings = RetrievalDataSettings(captions_per_image=1, max_caption_length=40)
    augmentation: AugmentationSettings = AugmentationSettings()
    contrastive: base.ContrastiveSettings = base.ContrastiveSettings(diversity_weight=0.1)
    training: RetrievalTrainingSettings = RetrievalTrainingSettings()
    # Park et al. 2020, section 3.5: first only the last image projection, then also the text encoder, then all
    projection_stage: base.ScheduleSettings = base.ScheduleSettings(epochs=4, learning_rate=0.005, **CONSTANT)
    text_stage: base.ScheduleSettings = base.ScheduleSettings(epochs=15, learning_rate=0.0005, **CONSTANT)
    image_stage: base.ScheduleSettings = base.ScheduleSettings(epochs=40, learning_rate=0.00005, **CONSTANT)
    evaluation: RetrievalEvaluationSettings = RetrievalEvaluationSettings(metric="rsum")


@dataclass(frozen=True)
class TranslationDataSettings(base.DataSettings):
    """Sentences for training, and their subwords."""

    vocab_size: int = setting(10_000, "joint subword vocabulary, including special tokens", minimum=MIN_SUBWORDS)
    max_length: int = setting(256, "maximum tokens of a sentence in training and translation", minimum=2)


@dataclass(frozen=True)
class TranslationTrainingSettings(base.TrainingSettings):
    """Optimization."""

    batch_tokens: int | None = setting(4096, "tokens per update, on the longer side; null = by batch_size", minimum=1)
    label_smoothing: float = setting(0.1, "share of the target spread over the vocabulary", minimum=0.0, below=1.0)


@dataclass(frozen=True)
class TranslationConfig(base.TrainingConfig):
    """The training config of a translator; `vocab_size` of its section `model` follows from the data."""

    default_model_type: ClassVar[str] = "nsa_transformer"

    data: TranslationDataSettings = TranslationDataSettings(spec="parallel:data,source=en,target=de")
    training: TranslationTrainingSettings = TranslationTrainingSettings(  # Transformer-Base (Vaswani et al. 2017)
        learning_rate=7e-4, schedule="inverse_sqrt", warmup_updates=4000, adam_epsilon=1e-9
    )
    evaluation: GenerationSettings = GenerationSettings(
        metric="bleu", num_beams=4, max_new_tokens=128, length_penalty=0.6
    )
