"""The models of both architectures."""

import torch
from torch import nn
from transformers.modeling_outputs import CausalLMOutput

from hf_ngsan.models.attention import DecoderLayer
from hf_ngsan.models.captioning import CaptioningForConditionalGeneration, WordDecoder
from hf_ngsan.models.modeling_base import HubPreTrainedModel
from hf_ngsan.models.modeling_ngsan import NGSANEncoder, NGSANModel, NGSANPreTrainedModel

from .configuration_outside import OutsideCaptionerConfig, OutsideLanguageModelConfig


class LoudLayer(DecoderLayer):
    def __init__(self, config: OutsideCaptionerConfig, layer_idx: int):
        super().__init__(config, layer_idx)
        self.loudness = config.loudness

    def forward(self, *args, **kwargs) -> torch.Tensor:
        return self.loudness * super().forward(*args, **kwargs)


class LoudDecoder(WordDecoder):
    """The last layer is of another kind."""

    def make_layer(self, config: OutsideCaptionerConfig, layer_idx: int) -> nn.Module:
        kind = LoudLayer if layer_idx == config.num_hidden_layers - 1 else DecoderLayer
        return kind(config, layer_idx)


class OutsideCaptionerModel(NGSANModel):
    config: OutsideCaptionerConfig

    def __init__(self, config: OutsideCaptionerConfig):
        super().__init__(config)
        self.encoder, self.decoder = NGSANEncoder(config), LoudDecoder(config)
        self.post_init()


class OutsideCaptioner(NGSANPreTrainedModel, CaptioningForConditionalGeneration):
    config: OutsideCaptionerConfig

    def __init__(self, config: OutsideCaptionerConfig):
        super().__init__(config)
        self.model = OutsideCaptionerModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size)
        self.post_init()


class OutsideLanguageModel(HubPreTrainedModel):
    config: OutsideLanguageModelConfig

    def __init__(self, config: OutsideLanguageModelConfig):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size)
        self.post_init()

    def forward(self, input_ids: torch.LongTensor, **kwargs) -> CausalLMOutput:
        return CausalLMOutput(logits=self.lm_head(self.embed_tokens(input_ids)))
