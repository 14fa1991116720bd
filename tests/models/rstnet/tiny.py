"""Tiny RSTNets, language models and grids."""

import torch

from hf_ngsan.models.configuration_rstnet import RSTNetConfig, RSTNetLanguageModelConfig
from hf_ngsan.models.modeling_rstnet import RSTNetForConditionalGeneration
from hf_ngsan.models.modeling_rstnet_language_model import RSTNetLanguageModel
from tests.models.tiny import FEATURE_SIZE, WORDS, make_lively, make_talkative

VOCAB_SIZE = len(WORDS) + 4
TEXT_ENCODER = {
    **{"model_type": "bert", "vocab_size": 40, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2},
    **{"intermediate_size": 20, "max_position_embeddings": 64},
}
SIZES = {"vocab_size": VOCAB_SIZE, "hidden_size": 32, "num_attention_heads": 4, "intermediate_size": 48}
OUR_TOKENS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "decoder_start_token_id": 1}


def tiny_config(release: bool = False, **changes) -> RSTNetConfig:
    sizes = {
        **SIZES,
        "visual_feature_size": FEATURE_SIZE,
        "encoder_layers": 2,
        "plain_decoder_layers": 1,
        "geometry_hidden_size": 8,
        "language_model_config": {"text_encoder_config": TEXT_ENCODER},
    }
    if not changes.get("adaptive_attention", True):
        del sizes["language_model_config"]
    if release:
        return RSTNetConfig.from_release(**{**sizes, **OUR_TOKENS, "grid_size": [3, 3], **changes})
    return RSTNetConfig(**{**sizes, **changes})


def tiny_captioner(seed: int = 1, **changes) -> RSTNetForConditionalGeneration:
    """A captioner in evaluation mode that depends on its inputs; `changes` are those of `tiny_config`."""
    model = RSTNetForConditionalGeneration(tiny_config(**changes)).eval()
    (make_lively if model.lm_head.bias is None else make_talkative)(model, seed)
    model.generation_config.max_new_tokens = 8
    return model


def tiny_language_model(seed: int = 3, **changes) -> RSTNetLanguageModel:
    config = RSTNetLanguageModelConfig(**{**SIZES, "text_encoder_config": TEXT_ENCODER, **changes})
    model = RSTNetLanguageModel(config).eval()
    make_lively(model, seed)
    return model


def random_grids(number: int, rows: int = 3, columns: int = 3, seed: int = 0) -> dict[str, torch.Tensor]:
    """Features of grids, row by row."""
    generator = torch.Generator().manual_seed(seed)
    return {"visual_features": torch.randn(number, rows * columns, FEATURE_SIZE, generator=generator)}
