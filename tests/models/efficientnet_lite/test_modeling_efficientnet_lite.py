"""transformers' common tests on EfficientNet-Lite."""

import unittest

from hf_ngsan.models.modeling_efficientnet_lite import (
    NGSANEfficientNetLiteBackbone,
    NGSANEfficientNetLiteConfig,
)
from tests.models.backbone_suite import BackboneTests


class EfficientNetLiteBackboneTest(BackboneTests, unittest.TestCase):
    config_class = NGSANEfficientNetLiteConfig
    all_model_classes = (NGSANEfficientNetLiteBackbone,)
    fields = {"depths": [1, 2, 1], "hidden_sizes": [4, 6, 8], "embedding_size": 4}
