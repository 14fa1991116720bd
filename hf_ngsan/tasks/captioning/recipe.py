"""The training config of a captioner: its own settings beside those of every task."""

from dataclasses import dataclass, field
from typing import ClassVar, Self

from ...io.bounds import MAX_CAPTION_LENGTH, MAX_CAPTIONS
from ...training.objectives.distillation import DistillationSettings
from ...training.objectives.self_critical import SelfCriticalSettings
from ...training.recipe import Recipe
from ...training.settings import EvaluationSettings, TrainingSettings, setting
from ..caption_rows import CaptioningDataSettings
from ..image_augmentation import AugmentationSettings


@dataclass(frozen=True)
class CaptioningTrainingSettings(TrainingSettings):
    """Optimization; the schedule is for teacher forcing."""

    stage: str = setting(
        "xe",
        "xe = teacher forcing, scst = self-critical training of model.init_from, auto = one after the other, distill = "
        "model.init_from learns the words of teachers after those of its own captions, on images without captions too",
        choices=("xe", "scst", "auto", "distill"),
    )
    label_smoothing: float | None = setting(
        None,
        "share of the target spread evenly over the vocabulary; null = the model's own (BLIP), else 0",
        minimum=0.0,
        below=1.0,
    )
    word_dropout: float = setting(
        0.0, "teacher forcing: share of the words before each one that become unknown", minimum=0.0, below=1.0
    )
    consensus_power: float = setting(
        0.0, "captions count by their CIDEr-D against the image's others, to this power; 0 = all the same", minimum=0.0
    )
    teachers: tuple[str, ...] = setting(
        (), "captioners of the same vocabulary and features whose words are targets too; several as an ensemble"
    )
    teacher_weight: float = setting(
        0.5, "share of the teachers in the loss; the rest is that of the captions", minimum=0.0, maximum=1.0
    )
    teacher_temperature: float = setting(
        1.0, "softens the probabilities of teachers and captioner; the loss is multiplied by its square", minimum=0.1
    )


@dataclass(frozen=True)
class CaptioningEvaluationSettings(EvaluationSettings):
    """Generation of captions for the validation split, and the choice of the best model."""

    metric: str = setting("cider_d", "score of the validation split that chooses the best model, higher is better")
    num_beams: int = setting(3, "width of the beam search", minimum=1, maximum=MAX_CAPTIONS)
    max_new_tokens: int = setting(
        20, "longest generated caption in tokens, its end included", minimum=1, maximum=MAX_CAPTION_LENGTH
    )
    length_penalty: float = setting(1.0, "beams are ranked by log-probability / length ** this")


@dataclass(frozen=True)
class CaptioningRecipe(Recipe):
    """The training config of a captioner.

    Attributes:
        model: `model_type` and the fields of its configuration; or `init_from`, a folder of a trained captioner, and
            the configuration fields to change in it. `vocab_size` and `visual_feature_size` follow from the data.
        data, augmentation, training, self_critical, distillation, evaluation: the other sections.
    """

    default_model_type: ClassVar[str] = "ngsan"

    data: CaptioningDataSettings = field(default_factory=CaptioningDataSettings)
    augmentation: AugmentationSettings = field(default_factory=AugmentationSettings)
    training: CaptioningTrainingSettings = field(default_factory=CaptioningTrainingSettings)
    evaluation: CaptioningEvaluationSettings = field(default_factory=CaptioningEvaluationSettings)
    self_critical: SelfCriticalSettings = field(default_factory=SelfCriticalSettings)
    distillation: DistillationSettings = field(default_factory=DistillationSettings)

    def changes_that_break_resuming(self, new: Self) -> list[str]:
        """Returns the changed keys that a resumed run may not change; a self-critical stage may be added to a run."""
        changed = super().changes_that_break_resuming(new)
        if (self.training.stage, new.training.stage) == ("xe", "auto"):
            changed.remove("training.stage")
        if self.training.stage == "xe":
            changed = [key for key in changed if not key.startswith("self_critical.")]
        return changed
