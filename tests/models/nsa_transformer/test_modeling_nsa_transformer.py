"""transformers' common model and configuration tests on the Transformer for translation."""

import unittest

import pytest
import torch
from transformers.models.auto import modeling_auto

from hf_ngsan.models.configuration_nsa_transformer import NSATransformerConfig
from hf_ngsan.models.modeling_nsa_transformer import NSATransformerForConditionalGeneration, NSATransformerModel
from tests.transformers_suite import MISSING, import_suite, is_available

if not is_available():
    pytest.skip(MISSING, allow_module_level=True)

common = import_suite("test_modeling_common")
configuration = import_suite("test_configuration_common")
generation = import_suite("generation.test_utils")


class TranslatorTester:
    batch_size, seq_length = 3, 6
    encoder_seq_length = decoder_seq_length = key_length = decoder_key_length = seq_length
    hidden_size, num_hidden_layers, num_attention_heads = 32, 2, 4
    is_training = True

    def __init__(self, **fields):
        self.fields = fields

    def get_config(self):
        sizes = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
        return NSATransformerConfig(**sizes, intermediate_size=37, **self.fields)

    def prepare_config_and_inputs_for_common(self):
        source, target = (torch.randint(3, 99, (self.batch_size, self.seq_length)) for _ in range(2))
        mask = torch.ones_like(source)
        mask[1, -2:] = 0
        inputs = {"input_ids": source, "attention_mask": mask}
        return self.get_config(), {**inputs, "decoder_input_ids": target, "decoder_attention_mask": mask.clone()}


@pytest.mark.slow
class NSATransformerModelTest(common.ModelTesterMixin, generation.GenerationTesterMixin, unittest.TestCase):
    all_model_classes = (NSATransformerModel, NSATransformerForConditionalGeneration)
    is_encoder_decoder = True
    test_can_init_all_missing_weights_before_2023 = True
    fields = {}

    def setUp(self):
        self.model_tester = TranslatorTester(**self.fields)
        # The common tests tell base model and head apart by their names in these tables of built-in models.
        for table, kind in (
            (modeling_auto.MODEL_MAPPING_NAMES, NSATransformerModel),
            (modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES, NSATransformerForConditionalGeneration),
        ):
            patcher = unittest.mock.patch.dict(table, {"nsa_transformer": kind.__name__})
            patcher.start()
            self.addCleanup(patcher.stop)

    def test_resize_embeddings_untied(self):
        self.skipTest("the embeddings of source, target and output are one matrix")

    test_load_save_without_tied_weights = test_resize_embeddings_untied


class EveryNormModelTest(NSATransformerModelTest):
    """Norms with parameters and with running statistics."""

    fields = {"query_norm": "batch", "key_norm": "instance", "norm_affine": True}


class NSATransformerConfigTest(unittest.TestCase):
    def test_config(self):
        tester = configuration.ConfigTester(self, config_class=NSATransformerConfig, hidden_size=32)
        tester.run_common_tests()
