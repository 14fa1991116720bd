import torch
from torch import nn
from transformers.modeling_outputs import BaseModelOutput

from hf_ngsan.models.captioning import CaptioningForConditionalGeneration, CaptioningModel, WordDecoder
from hf_ngsan.models.modeling_base import HubPreTrainedModel, check_visual_features

from .configuration_glance import GlanceConfig


class GlancePreTrainedModel(HubPreTrainedModel):
    config: GlanceConfig
    main_input_name = "visual_features"
    input_modalities = ["image", "text"]


class GlanceEncoder(GlancePreTrainedModel):
    def __init__(self, config: GlanceConfig):
        super().__init__(config)
        self.embed = nn.Linear(config.visual_feature_size, config.hidden_size)
        self.dropout = nn.Dropout(config.dropout)
        self.post_init()

    def forward(
        self,
        visual_features: torch.FloatTensor,
        visual_boxes: torch.FloatTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        **kwargs,
    ) -> BaseModelOutput:
        check_visual_features(visual_features, attention_mask, self.config.visual_feature_size)
        states = torch.relu(self.embed(visual_features.to(self.embed.weight.dtype)))
        return BaseModelOutput(last_hidden_state=self.dropout(states))


class GlanceModel(GlancePreTrainedModel, CaptioningModel):
    def __init__(self, config: GlanceConfig):
        super().__init__(config)
        self.encoder, self.decoder = GlanceEncoder(config), WordDecoder(config)
        self.post_init()


class GlanceForConditionalGeneration(GlancePreTrainedModel, CaptioningForConditionalGeneration):
    def __init__(self, config: GlanceConfig):
        super().__init__(config)
        self.model = GlanceModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size)
        self.post_init()
