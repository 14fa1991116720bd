from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from accelerate import Accelerator
from datasets import Dataset

from hf_ngsan.data import CaptionCollator, build_tokenizer, load_data
from hf_ngsan.metrics.retrieval import retrieval_metrics
from hf_ngsan.training import Stage, Task, TrainingConfig
from hf_ngsan.training.batches import map_sharded, take
from hf_ngsan.training.config import ContrastiveSettings, EvaluationSettings
from hf_ngsan.training.objectives import Contrastive

from .configuration_matching import MatchingConfig
from .modeling_matching import MatchingModel
from .processing_matching import MatchingProcessor


@dataclass(frozen=True)
class MatchingTrainingConfig(TrainingConfig):
    evaluation: EvaluationSettings = EvaluationSettings(metric="text_to_image_median_rank")
    contrastive: ContrastiveSettings = ContrastiveSettings()


class MatchingTask(Task):
    """Finds the image of a caption, and the captions of an image."""

    config_class = MatchingTrainingConfig
    unit = "images"

    @property
    def greater_is_better(self) -> bool:
        return not self.metric.endswith("rank")

    def load_rows(self, split: str) -> Dataset:
        return load_data(self.config.data.spec, split)

    def build(self, rows: Dataset) -> tuple[MatchingModel, MatchingProcessor]:
        tokenizer = build_tokenizer([caption for captions in rows["captions"] for caption in captions], min_count=1)
        fields = {name: value for name, value in self.config.model.items() if name != "model_type"}
        size = rows[0]["visual_features"].shape[-1]
        config = MatchingConfig(visual_feature_size=size, vocab_size=len(tokenizer), **fields)
        return MatchingModel(config), MatchingProcessor(tokenizer=tokenizer)

    def stages(self, model: MatchingModel, processor: MatchingProcessor, rows: Dataset) -> list[Stage]:
        return [Stage("contrastive", Contrastive(self.config.contrastive), self.config.training)]

    def collator(self, processor: MatchingProcessor) -> Callable[[list], dict]:
        return CaptionCollator(processor, captions_per_image=2, seed=self.config.training.seed)

    def evaluate(
        self, model: MatchingModel, processor: MatchingProcessor, rows: Dataset, accelerator: Accelerator
    ) -> dict[str, float]:
        collate = self.collator(processor)

        def embed(indices: range) -> list[tuple[np.ndarray, np.ndarray]]:
            batch = {name: tensor.to(model.device) for name, tensor in collate(take(rows, indices)).items()}
            with torch.inference_mode():
                output = model(**batch)
            texts = output.text_embeds.unflatten(0, (len(indices), -1))
            return list(zip(output.image_embeds.float().cpu().numpy(), texts.float().cpu().numpy(), strict=True))

        pairs = map_sharded(embed, len(rows), self.config.evaluation.batch_size, accelerator)
        images, texts = (np.stack(embeddings) for embeddings in zip(*pairs, strict=True))
        return retrieval_metrics(images @ texts.reshape(-1, texts.shape[-1]).T)
