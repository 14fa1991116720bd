"""transformers' common configuration tests on the NG-SAN family."""

import unittest

import pytest

from hf_ngsan.models.configuration_ngsan import NGSANConfig
from tests.transformers_suite import MISSING, import_suite, is_available

if not is_available():
    pytest.skip(MISSING, allow_module_level=True)

ConfigTester = import_suite("test_configuration_common").ConfigTester


class NGSANConfigTest(unittest.TestCase):
    def test_config(self):
        ConfigTester(self, config_class=NGSANConfig, hidden_size=32).run_common_tests()

    def test_config_of_a_video_captioner(self):
        fields = {"visual_feature_size": 1024, "num_hidden_layers": 1, "geometric_bias": []}
        ConfigTester(self, config_class=NGSANConfig, **fields).run_common_tests()
