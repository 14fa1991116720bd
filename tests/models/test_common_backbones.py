"""transformers' common tests on the package's own backbones."""

import unittest

import pytest

from hf_ngsan.models.modeling_efficientnet_lite import NGSANEfficientNetLiteBackbone, NGSANEfficientNetLiteConfig
from hf_ngsan.models.modeling_resnext import NGSANResNeXtBackbone, NGSANResNeXtConfig
from hf_ngsan.models.modeling_vgg import NGSANVGGBackbone, NGSANVGGConfig
from tests.models.backbone_suite import BackboneTests
from tests.models.test_backbones import TINY_RESNEXT

SIZES = {"depths": [1, 2, 1], "hidden_sizes": [4, 6, 8]}


class EfficientNetLiteBackboneTest(BackboneTests, unittest.TestCase):
    config_class = NGSANEfficientNetLiteConfig
    all_model_classes = (NGSANEfficientNetLiteBackbone,)
    fields = {**SIZES, "embedding_size": 4}


class ResNeXtBackboneTest(BackboneTests, unittest.TestCase):
    config_class = NGSANResNeXtConfig
    all_model_classes = (NGSANResNeXtBackbone,)
    fields = TINY_RESNEXT


class VGGBackboneTest(BackboneTests, unittest.TestCase):
    config_class = NGSANVGGConfig
    all_model_classes = (NGSANVGGBackbone,)
    fields = SIZES

    def test_config(self):
        """As the common test, for a net without a stem."""
        config = NGSANVGGConfig(**self.fields)
        assert config.stage_names == ["stage1", "stage2", "stage3"]
        assert (config.out_features, config.out_indices) == (["stage3"], [2])
        assert NGSANVGGConfig(out_indices=[0, 2]).out_features == ["stage1", "stage3"]
        assert NGSANVGGConfig(out_features=["stage1", "stage3"]).out_indices == [0, 2]
        with pytest.raises(ValueError, match="same stages"):
            NGSANVGGConfig(out_features=["stage1", "stage2"], out_indices=[0, 2])
