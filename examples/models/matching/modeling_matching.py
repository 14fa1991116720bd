from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.functional import normalize
from transformers.utils import ModelOutput

from hf_ngsan.models.modeling_base import HubPreTrainedModel

from .configuration_matching import MatchingConfig


@dataclass
class MatchingOutput(ModelOutput):
    image_embeds: torch.FloatTensor | None = None
    text_embeds: torch.FloatTensor | None = None


def pool(states: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Returns the masked maximum of states `(B, N, D)`, normalized to length 1."""
    return normalize(states.masked_fill(mask[..., None] == 0, -torch.inf).amax(1), dim=-1)


class MatchingModel(HubPreTrainedModel):
    config: MatchingConfig
    main_input_name = "visual_features"

    def __init__(self, config: MatchingConfig):
        super().__init__(config)
        self.regions = nn.Linear(config.visual_feature_size, config.hidden_size)
        self.words = nn.Embedding(config.vocab_size, config.hidden_size)
        self.post_init()

    def forward(
        self,
        visual_features: torch.FloatTensor,
        attention_mask: torch.Tensor,
        labels: torch.LongTensor,
        visual_boxes: torch.FloatTensor | None = None,
    ) -> MatchingOutput:
        """Takes features `(B, N, D)`, a mask `(B, N)` and words `(B * C, T)`, -100 at padding; ignores boxes."""
        words = self.words(labels.clamp(min=0))
        return MatchingOutput(
            image_embeds=pool(self.regions(visual_features), attention_mask),
            text_embeds=pool(words, (labels != -100).long()),
        )
