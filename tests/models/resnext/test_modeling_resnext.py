"""transformers' common tests on the ResNeXt backbone."""

import unittest

from hf_ngsan.models.modeling_resnext import NGSANResNeXtBackbone, NGSANResNeXtConfig
from tests.models.backbone_suite import BackboneTests
from tests.models.resnext.test_architecture_resnext import TINY


class ResNeXtBackboneTest(BackboneTests, unittest.TestCase):
    config_class = NGSANResNeXtConfig
    all_model_classes = (NGSANResNeXtBackbone,)
    fields = TINY
