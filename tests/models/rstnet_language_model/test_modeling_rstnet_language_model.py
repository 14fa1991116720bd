"""transformers' common model and configuration tests on RSTNet's language model."""

import unittest

import pytest
import torch

from hf_ngsan.models.configuration_rstnet_language_model import RSTNetLanguageModelConfig
from hf_ngsan.models.modeling_rstnet_language_model import RSTNetLanguageModel
from tests.models.rstnet.tiny import SIZES, TEXT_ENCODER
from tests.transformers_suite import MISSING, import_suite, is_available

if not is_available():
    pytest.skip(MISSING, allow_module_level=True)

common = import_suite("test_modeling_common")
configuration = import_suite("test_configuration_common")


class LanguageModelTester:
    batch_size, seq_length = 3, 6
    encoder_seq_length = key_length = seq_length
    hidden_size, num_hidden_layers, num_attention_heads = 32, 1, 4
    is_training = True

    def get_config(self):
        return RSTNetLanguageModelConfig(**{**SIZES, "vocab_size": 30, "text_encoder_config": TEXT_ENCODER})

    def prepare_config_and_inputs_for_common(self):
        words = torch.randint(3, 30, (self.batch_size, self.seq_length))
        mask = torch.ones_like(words)
        mask[1, -2:] = 0
        return self.get_config(), {"input_ids": words, "attention_mask": mask}


@pytest.mark.slow
class RSTNetLanguageModelTest(common.ModelTesterMixin, unittest.TestCase):
    all_model_classes = (RSTNetLanguageModel,)
    test_resize_embeddings = False  # words have pieces: see resize_vocabulary

    def setUp(self):
        self.model_tester = LanguageModelTester()

    def _prepare_for_class(self, inputs_dict, model_class, return_labels=False):
        inputs = super()._prepare_for_class(inputs_dict, model_class, return_labels=return_labels)
        return {**inputs, "labels": inputs["input_ids"]} if return_labels else inputs

    def test_inputs_embeds(self):
        self.skipTest("the language model reads words, not embeddings")

    test_inputs_embeds_matches_input_ids = test_inputs_embeds


class RSTNetLanguageModelConfigTest(unittest.TestCase):
    def test_config(self):
        tester = configuration.ConfigTester(self, config_class=RSTNetLanguageModelConfig, hidden_size=32)
        tester.run_common_tests()
