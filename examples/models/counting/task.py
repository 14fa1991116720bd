from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from accelerate import Accelerator
from datasets import Dataset
from torch.nn.functional import cross_entropy
from torch.nn.utils.rnn import pad_sequence

from hf_ngsan.data import DataError, load_data
from hf_ngsan.loading import load_model
from hf_ngsan.training import Evaluation, Stage, Task, TrainingConfig
from hf_ngsan.training.batches import map_sharded, take
from hf_ngsan.training.config import EvaluationSettings, TrainingSettings, setting
from hf_ngsan.training.objectives import Objective

from .configuration_counting import CountingConfig
from .modeling_counting import CountingModel


@dataclass(frozen=True)
class CountingTraining(TrainingSettings):
    label_smoothing: float = setting(0.0, "label smoothing over all counts", minimum=0.0, below=1.0)


@dataclass(frozen=True)
class CountingTrainingConfig(TrainingConfig):
    """Training config with the default sections `model` and `data`; the other sections have keys of this task."""

    training: CountingTraining = CountingTraining()
    evaluation: EvaluationSettings = EvaluationSettings(metric="accuracy")


class CrossEntropy(Objective):
    def __init__(self, label_smoothing: float):
        self.label_smoothing = label_smoothing

    def weight(self, inputs: dict) -> torch.Tensor:
        return torch.tensor(float(len(inputs["labels"])), device=inputs["labels"].device)

    def loss(self, model: torch.nn.Module, inputs: dict) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        labels = inputs["labels"]
        logits = model(inputs["visual_features"], inputs["attention_mask"]).logits.float()
        loss = cross_entropy(logits, labels, reduction="sum", label_smoothing=self.label_smoothing)
        right = (logits.argmax(-1) == labels).sum()
        return loss, {"loss": loss.detach(), "right": right, "scenes": self.weight(inputs)}

    def summary(self, sums: dict[str, float]) -> dict[str, float]:
        return {"loss": sums["loss"] / sums["scenes"], "right": sums["right"] / sums["scenes"]}


def count_of(row: dict) -> int:
    return sum(name.endswith("star") for name in row["objects"])


def collate(rows: list[dict]) -> dict[str, torch.Tensor]:
    features = [torch.as_tensor(row["visual_features"], dtype=torch.float32) for row in rows]
    return {
        "visual_features": pad_sequence(features, batch_first=True),
        "attention_mask": pad_sequence([torch.ones(len(regions)) for regions in features], batch_first=True),
        "labels": torch.tensor([count_of(row) for row in rows]),
    }


class CountingTask(Task):
    """Counts the stars of a scene."""

    config_class = CountingTrainingConfig
    unit = "scenes"
    model_noun = "a counter"
    does = "counts the stars of a scene"

    @property
    def greater_is_better(self) -> bool:
        return self.metric == "accuracy"

    def known_metrics(self, rows: Dataset) -> Sequence[str]:
        return ["accuracy", "mean_error"]

    def load_rows(self, split: str) -> Dataset:
        data = self.config.data
        rows = load_data(data.spec, split)
        if "objects" not in rows.column_names:
            raise DataError(f"{data.spec}, split {split}, does not contain objects; counting needs scenes.")
        return rows.select(range(min(len(rows), data.limit or len(rows))))

    def build(self, rows: Dataset) -> tuple[CountingModel, None]:
        fields = {name: value for name, value in self.config.model.items() if name != "model_type"}
        if "init_from" in fields:
            return load_model(fields.pop("init_from"), "counting", **fields)
        return CountingModel(CountingConfig(visual_feature_size=rows[0]["visual_features"].shape[-1], **fields)), None

    def stages(self, model: CountingModel, processor: None, rows: Dataset) -> list[Stage]:
        training = self.config.training
        return [Stage("classification", CrossEntropy(training.label_smoothing), training)]

    def collator(self, processor: None) -> Callable[[list], dict]:
        return collate

    def evaluate(self, model: CountingModel, processor: None, rows: Dataset, accelerator: Accelerator) -> Evaluation:
        def count(indices: range) -> list[int]:
            batch = {name: tensor.to(model.device) for name, tensor in collate(take(rows, indices)).items()}
            with torch.inference_mode():
                return model(batch["visual_features"], batch["attention_mask"]).logits.argmax(-1).tolist()

        counts = map_sharded(count, len(rows), self.config.evaluation.batch_size, accelerator)
        errors = [abs(count - count_of(row)) for count, row in zip(counts, rows, strict=True)]
        scores = {"accuracy": errors.count(0) / len(errors), "mean_error": sum(errors) / len(errors)}
        return Evaluation(scores, results=counts)
