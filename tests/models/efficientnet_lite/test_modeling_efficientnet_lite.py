"""transformers' common tests on EfficientNet-Lite."""

import unittest

from hf_ngsan.models.modeling_efficientnet_lite import (
    NGSANEfficientNetLiteBackbone,
    NGSANEfficientNetLiteConfig,
)
from tests.models.backbone_suite import BackboneTests
from tests.models.efficientnet_lite.tiny import FIELDS


class EfficientNetLiteBackboneTest(BackboneTests, unittest.TestCase):
    config_class = NGSANEfficientNetLiteConfig
    all_model_classes = (NGSANEfficientNetLiteBackbone,)
    fields = FIELDS
