"""Errors of models, processors and searches whose result would be wrong, or whose error would be far away."""

import numpy as np
import pytest
import torch
from transformers import ViTConfig

from hf_ngsan import EnsembleForConditionalGeneration
from hf_ngsan.models.attention_maps import attention_maps
from hf_ngsan.models.decoding import constrained_beam_search, diverse_beam_search, with_search
from hf_ngsan.models.text_encoders import config_of_text_encoder, make_text_encoder
from hf_ngsan.models.transformers_backbones import config_from_dict
from tests.models import tiny
from tests.models.mhsan import tiny as mhsan
from tests.models.nsa_transformer.tiny import tiny_translator
from tests.models.rstnet import tiny as rstnet
from tests.tables import each_row

IMAGES, WORDS, PIXELS = tiny.random_images([3, 2]), torch.tensor([[1, 5], [1, 6]]), torch.zeros(1, 3, 24, 32)
BOXES = np.ones((2, 4))


def captioner():
    return tiny.tiny_captioner()


def diverse(**options):
    return captioner().generate(**IMAGES, custom_generate=diverse_beam_search, **options)


def caption(**inputs):
    return captioner()(**inputs)


def translate(**inputs):
    return tiny_translator().model.encoder(**inputs)


def encode(fields, **inputs):
    return mhsan.tiny_model(**fields)(**inputs)


@each_row(
    ("call", "arguments", "named"),
    [
        (caption, {**IMAGES, "decoder_input_ids": WORDS, "decoder_inputs_embeds": torch.zeros(2, 2, 32)}, "one of"),
        (caption, {**IMAGES, "decoder_input_ids": WORDS[:1].expand(3, -1)}, "3 captions .* 2 images"),
        (caption, {**IMAGES, "pixel_values": PIXELS, "decoder_input_ids": WORDS}, "pixel_values and visual_features"),
        (translate, {}, "input_ids and inputs_embeds"),
        (encode, {"fields": {"vision_config": mhsan.VISION}, "pixel_values": PIXELS, **IMAGES}, "and visual_features"),
        (encode, {"fields": {}, **mhsan.random_features([2]), "input_ids": WORDS[:1, :0]}, "no text"),
        (diverse, {"num_beams": 3, "num_beam_groups": 2}, "multiple of num_beam_groups"),
        (diverse, {"num_beams": 4, "output_scores": True}, "output_scores"),
        (diverse, {"num_beams": 4, "cache_implementation": "static"}, "cache_implementation"),
        (with_search, {"options": {"num_beam_groups": 2, "required_words": ["dog"]}, "processor": None}, "one of them"),
        (config_from_dict, {"config": {"model_type": "unheard"}}, "'unheard'"),
        (config_of_text_encoder, {"fields": {"model_type": "unheard"}}, "'unheard'"),
        (make_text_encoder, {"config": ViTConfig()}, "'vit'"),
        (attention_maps, {"weights": np.ones((1, 3)), "boxes": BOXES, "width": 4, "height": 4}, r"\(3, 4\)"),
    ],
)
def test_calls_that_have_no_right_answer(call, arguments, named):
    with pytest.raises(ValueError, match=named):
        call(**arguments)


def test_what_some_captioners_do_not_have():
    plain, two = rstnet.tiny_captioner(adaptive_attention=False), EnsembleForConditionalGeneration([captioner()] * 2)
    too_many = {"num_beams": 2, "max_new_tokens": 1, "required_words": [[5], [6], [7]]}
    for model, options in (
        (rstnet.tiny_captioner(), {"return_visualness": True}),
        (plain, {"return_visualness": True, "return_dict_in_generate": True}),
        (two, {"return_visualness": True}),
        (captioner(), {"custom_generate": constrained_beam_search, **too_many}),
    ):
        with pytest.raises(ValueError):
            model.generate(**IMAGES, **options)
    with pytest.raises(NotImplementedError):
        two.save_pretrained("folder")
    with pytest.raises(ValueError, match="grid_size"):
        plain(visual_features=torch.zeros(1, 5, tiny.FEATURE_SIZE), decoder_input_ids=WORDS[:1])
    with pytest.raises(ValueError, match="max_position_embeddings"):
        rstnet.tiny_language_model(position_embedding="table", max_position_embeddings=4)(WORDS.repeat(1, 3))


def test_boxes_of_another_number_of_images_or_without_features():
    features, boxes = [np.ones((3, tiny.FEATURE_SIZE), np.float32)], [np.ones((3, 4))]
    with pytest.raises(ValueError):
        tiny.tiny_processor()(visual_features=features, visual_boxes=boxes * 2)
    with pytest.raises(ValueError, match="visual_features"):
        mhsan.tiny_processor()(text="a ball", visual_boxes=boxes)
