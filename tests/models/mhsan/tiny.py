"""Tiny dual encoders and inputs that the tests of MHSAN share."""

import torch

from hf_ngsan.models.configuration_mhsan import MHSANConfig
from hf_ngsan.models.image_processing_captioning import CaptioningImageProcessor
from hf_ngsan.models.modeling_mhsan import MHSANModel
from hf_ngsan.models.processing_mhsan import MHSANProcessor
from tests.models.tiny import FEATURE_SIZE, WORDS, tiny_tokenizer

VOCAB_SIZE = len(WORDS) + 4
VISION = {
    "backbone_config": {"model_type": "ngsan_vgg", "hidden_sizes": [6, 12], "depths": [1, 1]},
    "grid_size": [3, 4],
}
TEXT = {"vocab_size": VOCAB_SIZE, "word_embedding_size": 10, "hidden_size": 16, "num_hidden_layers": 2}
BERT = {
    **{"model_type": "bert", "vocab_size": VOCAB_SIZE, "hidden_size": 16, "num_hidden_layers": 2},
    **{"num_attention_heads": 2, "intermediate_size": 20, "max_position_embeddings": 32},
}


def tiny_config(**changes) -> MHSANConfig:
    sizes = {
        "vision_config": None,
        "visual_feature_size": FEATURE_SIZE if changes.get("vision_config") is None else None,
        "hidden_size": 18,
        "projection_dim": 14,
        "attention_hidden_size": 8,
        "num_image_heads": 3,
        "num_text_heads": 2,
    }
    text = {**TEXT, **changes.pop("text", {})}
    return MHSANConfig(**{**sizes, "text_config": text, **changes})


def tiny_model(seed: int = 1, **changes) -> MHSANModel:
    """A dual encoder in evaluation mode whose attention is far from uniform and whose parameters are not 0."""
    model = MHSANModel(tiny_config(**changes)).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            scale = 1.5 / parameter[0].numel() ** 0.5 if parameter.ndim > 1 else 0.3
            parameter.copy_(noise * scale)
    return model


def tiny_processor(pixels: bool = False) -> MHSANProcessor:
    image_processor = CaptioningImageProcessor(size={"height": 24, "width": 32}) if pixels else None
    return MHSANProcessor(image_processor=image_processor, tokenizer=tiny_tokenizer())


def random_words(lengths: list[int], seed: int = 0) -> dict[str, torch.Tensor]:
    """Padded words and their mask."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(4, VOCAB_SIZE, (len(lengths), max(lengths)), generator=generator)
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    return {"input_ids": ids * mask, "attention_mask": mask}


def random_features(lengths: list[int], seed: int = 0) -> dict[str, torch.Tensor]:
    """Padded features and their mask."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.randn(len(lengths), max(lengths), FEATURE_SIZE, generator=generator)
    mask = (torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]).long()
    return {"visual_features": features * mask[..., None], "visual_attention_mask": mask}
