"""transformers' common model tests on the spatial captioner."""

import unittest

from hf_ngsan.models.modeling_spatial_captioner import SpatialCaptionerForConditionalGeneration, SpatialCaptionerModel
from tests.models.captioner_suite import CaptionerModelTest, PixelTester

SIZES = {"encoder_layers": 2, "decoder_layers": 2}


class SpatialCaptionerModelTest(CaptionerModelTest, unittest.TestCase):
    all_model_classes = (SpatialCaptionerModel, SpatialCaptionerForConditionalGeneration)
    tester_options = {"with_mask": True, "with_boxes": False, **SIZES}


class EveryOptionModelTest(SpatialCaptionerModelTest):
    """The other choices: plain temperature, biases, no projection of features, dropout everywhere, tied words."""

    tester_options = {
        "with_mask": False,
        "with_boxes": False,
        "attention_temperature": "head_dim",
        "attention_bias": True,
        "residual_dropout": 0.1,
        "visual_feature_size": 32,
        "tie_word_embeddings": True,
        **SIZES,
    }

    def test_retain_grad_hidden_states_attentions(self):
        """The original wants a gradient of the first hidden states: here they are the features, which then need one."""
        inputs = self.model_tester.prepare_config_and_inputs_for_common()[1]
        inputs["visual_features"].requires_grad_()
        with unittest.mock.patch.object(
            self.model_tester,
            "prepare_config_and_inputs_for_common",
            lambda: (self.model_tester.get_config(), inputs),
        ):
            super().test_retain_grad_hidden_states_attentions()


class PixelModelTest(SpatialCaptionerModelTest):
    """The model with a vision encoder that is trained with it, and places from boxes."""

    make_tester = PixelTester
    tester_options = {
        "with_mask": False,
        "with_boxes": False,
        "position_embedding": "boxes",
        "visual_feature_size": None,
        "vision_config": {
            "backbone_config": {"model_type": "ngsan_vgg", "hidden_sizes": [4, 8], "depths": [1, 1]},
            "grid_size": [1, 5],
            "frozen": False,
        },
        **SIZES,
    }
