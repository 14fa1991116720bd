"""transformers' common model tests on the NG-SAN family."""

import unittest

from hf_ngsan.models.modeling_ngsan import NGSANForConditionalGeneration, NGSANModel
from tests.models.captioner_suite import CaptionerModelTest, PixelTester

SIZES = {"num_hidden_layers": 2, "geometry_hidden_size": 8}


class NGSANModelTest(CaptionerModelTest, unittest.TestCase):
    all_model_classes = (NGSANModel, NGSANForConditionalGeneration)
    additional_model_inputs = ("visual_boxes",)
    tester_options = {"with_mask": True, "with_boxes": True, **SIZES}


class EveryOptionModelTest(NGSANModelTest):
    """All kinds of bias, norms with parameters and with running statistics, absolute geometry, one word matrix."""

    tester_options = {
        "with_mask": False,
        "with_boxes": True,
        "query_norm": "instance",
        "key_norm": "batch",
        "norm_affine": True,
        "geometric_bias": ["content", "query", "key"],
        "geometry_features": "signed",
        "absolute_geometry": True,
        "tie_word_embeddings": True,
        **SIZES,
    }


class PixelModelTest(NGSANModelTest):
    """The model with a frozen vision encoder."""

    make_tester = PixelTester
    additional_model_inputs = ()
    tester_options = {
        "with_mask": False,
        "with_boxes": False,
        "visual_feature_size": None,
        "vision_config": {
            "backbone_config": {"model_type": "ngsan_vgg", "hidden_sizes": [4, 8], "depths": [1, 1]},
            "grid_size": [1, 5],
        },
        **SIZES,
    }
