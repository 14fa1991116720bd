"""transformers' common model tests on RSTNet."""

import unittest

import pytest

from hf_ngsan.models.modeling_rstnet import RSTNetForConditionalGeneration, RSTNetModel
from tests.models.captioner_suite import CaptionerModelTest, CaptionerTester, PixelTester
from tests.models.rstnet.tiny import OUR_TOKENS

TEXT_ENCODER = {
    "model_type": "bert",
    "vocab_size": 200,
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 20,
}
SIZES = {"encoder_layers": 2, "plain_decoder_layers": 1, "geometry_hidden_size": 8}
WITH_LANGUAGE_MODEL = {**SIZES, "language_model_config": {"text_encoder_config": TEXT_ENCODER}}


class AdaptiveModelTest(CaptionerModelTest):
    """What holds of every captioner with a language model."""

    def test_inputs_embeds(self):
        self.skipTest("the language model reads words, not embeddings")

    test_inputs_embeds_matches_input_ids = test_inputs_embeds


@pytest.mark.slow
class RSTNetModelTest(AdaptiveModelTest, unittest.TestCase):
    all_model_classes = (RSTNetModel, RSTNetForConditionalGeneration)
    additional_model_inputs = ("visual_boxes",)
    tester_options = {"with_mask": True, "with_boxes": True, **WITH_LANGUAGE_MODEL}


@pytest.mark.slow
class BaseModelTest(CaptionerModelTest, unittest.TestCase):
    """Without language model and geometry (table 1, first row)."""

    all_model_classes = (RSTNetModel, RSTNetForConditionalGeneration)
    tester_options = {
        "with_mask": True,
        "with_boxes": False,
        "geometry_fusion": None,
        "adaptive_attention": False,
        "encoder_layers": 2,
        "plain_decoder_layers": 2,
    }


class ReleaseTester(CaptionerTester):
    def __init__(self, config_class, with_mask, with_boxes, **fields):
        super().__init__(config_class.from_release, with_mask, with_boxes, **fields)


@pytest.mark.slow
class ReleaseModelTest(AdaptiveModelTest, unittest.TestCase):
    """Every switch as released."""

    all_model_classes = (RSTNetModel, RSTNetForConditionalGeneration)
    make_tester = ReleaseTester
    tester_options = {"with_mask": True, "with_boxes": False, "grid_size": [1, 6], **OUR_TOKENS, **WITH_LANGUAGE_MODEL}


@pytest.mark.slow
class PixelModelTest(AdaptiveModelTest, unittest.TestCase):
    """The model with a frozen vision encoder."""

    all_model_classes = (RSTNetModel, RSTNetForConditionalGeneration)
    make_tester = PixelTester
    tester_options = {
        "with_mask": False,
        "with_boxes": False,
        "visual_feature_size": None,
        "vision_config": {
            "backbone_config": {"model_type": "ngsan_vgg", "hidden_sizes": [4, 8], "depths": [1, 1]},
            "grid_size": [1, 5],
        },
        **WITH_LANGUAGE_MODEL,
    }
