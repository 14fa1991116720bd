from dataclasses import dataclass

import torch
from torch import nn
from transformers.utils import ModelOutput

from hf_ngsan.models.modeling_base import HubPreTrainedModel

from .configuration_counting import CountingConfig


@dataclass
class CountingOutput(ModelOutput):
    """Logits `(B, largest_count + 1)` of the counts 0, 1, ..."""

    logits: torch.FloatTensor | None = None


class CountingModel(HubPreTrainedModel):
    config: CountingConfig
    main_input_name = "visual_features"

    def __init__(self, config: CountingConfig):
        super().__init__(config)
        self.embed = nn.Linear(config.visual_feature_size, config.hidden_size)
        self.classify = nn.Linear(config.hidden_size, config.largest_count + 1)
        self.post_init()

    def forward(self, visual_features: torch.FloatTensor, attention_mask: torch.Tensor) -> CountingOutput:
        """Takes features `(B, N, D)` and a mask `(B, N)`, 1 = real, 0 = padding."""
        regions = torch.relu(self.embed(visual_features)) * attention_mask[..., None]
        return CountingOutput(logits=self.classify(regions.sum(1)))
