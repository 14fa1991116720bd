"""A tiny translator and random sources that the tests of the model share."""

import torch

from hf_ngsan.models.configuration_nsa_transformer import NSATransformerConfig
from hf_ngsan.models.modeling_nsa_transformer import NSATransformerForConditionalGeneration
from tests.models.tiny import make_lively

SIZES = {"vocab_size": 30, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24}
VARIANTS = {
    "Transformer": {"query_norm": None},
    "NSA": {},
    "both, affine": {"key_norm": "instance", "norm_affine": True},
    "layer and batch norm": {"query_norm": "layer", "key_norm": "batch"},
}


def tiny_translator(seed: int = 10, **changes) -> NSATransformerForConditionalGeneration:
    """A translator in evaluation mode that depends on its inputs: matrices of unit gain, no parameter 0."""
    model = NSATransformerForConditionalGeneration(NSATransformerConfig(**{**SIZES, **changes})).eval()
    make_lively(model, seed)
    with torch.no_grad():
        model.lm_head.weight.mul_(0.3)  # otherwise every token would be followed by itself, because both are one matrix
        for layer in model.model.decoder.layers:
            layer.encoder_attn.q_proj.weight.mul_(3.0)
            layer.encoder_attn.out_proj.weight.mul_(3.0)
    model.generation_config.max_new_tokens = 8
    return model


def random_sources(lengths: list[int], seed: int = 0) -> dict[str, torch.Tensor]:
    """Padded sources with these numbers of tokens, the last of which is the end token, and their mask."""
    generator = torch.Generator().manual_seed(seed)
    tokens = torch.zeros(len(lengths), max(lengths), dtype=torch.long)
    mask = torch.zeros_like(tokens)
    for row, length in enumerate(lengths):
        tokens[row, :length] = torch.randint(4, SIZES["vocab_size"], (length,), generator=generator)
        tokens[row, length - 1], mask[row, :length] = 2, 1
    return {"input_ids": tokens, "attention_mask": mask}
