"""Tiny captioners, tokenizers and inputs that the tests of the models share."""

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from hf_ngsan.models.configuration_ngsan import NGSANConfig
from hf_ngsan.models.configuration_vision import VisionConfig
from hf_ngsan.models.modeling_ngsan import NGSANForConditionalGeneration
from hf_ngsan.models.modeling_vision import VisionModel
from hf_ngsan.models.processing_ngsan import NGSANProcessor

FEATURE_SIZE = 12
VOCABULARY = "a red blue green ball box ring is left of right above below near the and two small large on"
WORDS = VOCABULARY.split()


def pretrained_vision(source, **fields) -> VisionModel:
    """The vision encoder with a trained backbone or detection model from a folder."""
    return VisionModel(VisionConfig(pretrained=str(source), **fields)).eval()


def tiny_config(**changes) -> NGSANConfig:
    sizes = {
        **{"vocab_size": len(WORDS) + 4, "visual_feature_size": FEATURE_SIZE, "hidden_size": 32},
        **{"num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 48, "geometry_hidden_size": 8},
    }
    return NGSANConfig(**{**sizes, **changes})


def tiny_captioner(seed: int = 9, **changes) -> NGSANForConditionalGeneration:
    """A captioner in evaluation mode that depends on its inputs: matrices of unit gain, no parameter of 0.

    With the usual initialization all images would have nearly the same logits, which would hide most mistakes.

    Args:
        seed: of the weights.
        changes: fields of the configuration, and `attn_implementation`.
    """
    attention = changes.pop("attn_implementation", None)
    config = tiny_config(**changes)
    if attention is not None:
        config._attn_implementation = attention
    model = NGSANForConditionalGeneration(config).eval()
    make_talkative(model, seed)
    model.generation_config.max_new_tokens = 8
    return model


@torch.no_grad()
def make_lively(model, seed: int):
    """Random weights of unit gain, and no parameter of 0."""
    generator = torch.Generator().manual_seed(seed)
    for parameter in model.parameters():
        noise = torch.randn(parameter.shape, generator=generator)
        if parameter.ndim > 1:
            parameter.copy_(noise / parameter[0].numel() ** 0.5)
        else:
            parameter.add_(0.1 * noise)


@torch.no_grad()
def make_talkative(model, seed: int):
    """Random weights with which a captioner gives every image a different caption."""
    make_lively(model, seed)
    # Captions should end, some early, and consist of words.
    model.lm_head.bias[model.config.eos_token_id] += 2
    model.lm_head.bias[[model.config.pad_token_id, model.config.bos_token_id]] -= 20


def random_boxes(*shape: int, generator: torch.Generator | None = None) -> torch.Tensor:
    """Boxes `(*shape, 4)` within [0, 1], each side between 0.05 and 0.5."""
    size = 0.05 + 0.45 * torch.rand(*shape, 2, generator=generator)
    top_left = torch.rand(*shape, 2, generator=generator) * (1 - size)
    return torch.cat([top_left, top_left + size], dim=-1)


def random_images(lengths: list[int], seed: int = 0) -> dict[str, torch.Tensor]:
    """Padded features, boxes and mask of images with these numbers of regions."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.zeros(len(lengths), max(lengths), FEATURE_SIZE)
    boxes = torch.zeros(len(lengths), max(lengths), 4)
    mask = torch.zeros(len(lengths), max(lengths), dtype=torch.long)
    for row, length in enumerate(lengths):
        features[row, :length] = torch.randn(length, FEATURE_SIZE, generator=generator)
        boxes[row, :length] = random_boxes(length, generator=generator)
        mask[row, :length] = 1
    return {"visual_features": features, "visual_boxes": boxes, "attention_mask": mask}


def one_image(batch: dict[str, torch.Tensor], row: int) -> dict[str, torch.Tensor]:
    """One image of a batch, without its padding."""
    length = int(batch["attention_mask"][row].sum())
    return {name: tensor[row : row + 1, :length] for name, tensor in batch.items()}


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    special = ["<pad>", "<s>", "</s>", "<unk>"]
    vocabulary = {word: index for index, word in enumerate(special + WORDS)}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", bos_token="<s>", eos_token="</s>", unk_token="<unk>"
    )


def tiny_processor() -> NGSANProcessor:
    return NGSANProcessor(tiny_tokenizer())
