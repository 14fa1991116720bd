"""Small photos, and a tiny captioner with a vision encoder that distinguishes them."""

import numpy as np
from PIL import Image

from hf_ngsan.models.image_processing_captioning import CaptioningImageProcessor
from hf_ngsan.models.modeling_ngsan import NGSANForConditionalGeneration
from hf_ngsan.models.processing_ngsan import NGSANProcessor
from tests.models.tiny import tiny_captioner, tiny_tokenizer


def photo(size: tuple[int, int], seed: int = 0) -> Image.Image:
    """A coarse pattern, which remains visible in a small grid; the size is width and height."""
    pixels = np.random.default_rng(seed).integers(0, 256, (3, 4, 3), dtype=np.uint8)
    return Image.fromarray(pixels).resize(size, Image.Resampling.NEAREST)


PHOTOS = [photo(size, seed) for seed, size in enumerate([(40, 30), (24, 36), (50, 20), (33, 47), (18, 18)])]


def pixel_captioner() -> NGSANForConditionalGeneration:
    """A captioner of 12 grid cells, with weights that give the photos at least three captions."""
    backbone = {"model_type": "ngsan_vgg", "hidden_sizes": [6, 12], "depths": [1, 1]}
    return tiny_captioner(seed=29, vision_config={"backbone_config": backbone, "grid_size": [3, 4]})


def pixel_processor(**size: int) -> NGSANProcessor:
    image_processor = CaptioningImageProcessor(size=size or {"height": 24, "width": 32})
    return NGSANProcessor(image_processor, tiny_tokenizer())
