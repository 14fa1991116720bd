"""Tiny models and inputs that the tests of MCAN share."""

import torch

from hf_ngsan.data.vocabulary import PADDING, UNKNOWN, make_question_tokenizer
from hf_ngsan.models.configuration_mcan import MCANConfig
from hf_ngsan.models.image_processing_captioning import CaptioningImageProcessor
from hf_ngsan.models.modeling_mcan import MCANForVisualQuestionAnswering
from hf_ngsan.models.processing_mcan import MCANProcessor
from tests.models.tiny import FEATURE_SIZE, make_lively, random_boxes

WORDS = ["what", "color", "is", "the", "ball", "there", "a", "box", "left", "of", "how", "many", "rings", "are"]
ANSWERS = ("yes", "no", "red", "blue", "2")
VOCAB_SIZE = len(WORDS) + 2
VISION = {
    "backbone_config": {"model_type": "ngsan_vgg", "hidden_sizes": [6, 12], "depths": [1, 1]},
    "grid_size": [3, 4],
}


def tiny_config(**changes) -> MCANConfig:
    sizes = {
        **{"vocab_size": VOCAB_SIZE, "word_embedding_size": 10, "visual_feature_size": FEATURE_SIZE, "hidden_size": 16},
        **{"num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 24, "reduction_hidden_size": 12},
        **{"num_glimpses": 2, "pooled_size": 20, "geometry_hidden_size": 6, "id2label": dict(enumerate(ANSWERS))},
        "label2id": {answer: index for index, answer in enumerate(ANSWERS)},
    }
    return MCANConfig(**{**sizes, **changes})


def tiny_model(seed: int = 1, **changes) -> MCANForVisualQuestionAnswering:
    """A model in evaluation mode that depends on its inputs."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)  # the biases, which `make_lively` changes only slightly
        model = MCANForVisualQuestionAnswering(tiny_config(**changes)).eval()
    make_lively(model, seed)
    return model


def tiny_processor(pixels: bool = False, max_length: int = 8) -> MCANProcessor:
    tokenizer = make_question_tokenizer([PADDING, UNKNOWN, *WORDS], max_length=max_length)
    image_processor = CaptioningImageProcessor(size={"height": 24, "width": 32}) if pixels else None
    return MCANProcessor(image_processor=image_processor, tokenizer=tokenizer)


def random_inputs(num_words: list[int], num_regions: list[int], seed: int = 0) -> dict[str, torch.Tensor]:
    """Padded questions, features and boxes with their masks."""
    generator = torch.Generator().manual_seed(seed)
    words, regions = (torch.arange(max(of)) < torch.tensor(of)[:, None] for of in (num_words, num_regions))
    ids = torch.randint(2, VOCAB_SIZE, words.shape, generator=generator)
    features = torch.randn(*regions.shape, FEATURE_SIZE, generator=generator)
    return {
        "input_ids": ids * words,
        "attention_mask": words.long(),
        "visual_features": features * regions[..., None],
        "visual_attention_mask": regions.long(),
        "visual_boxes": random_boxes(*regions.shape, generator=generator) * regions[..., None],
    }
