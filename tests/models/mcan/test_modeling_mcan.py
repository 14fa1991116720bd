"""transformers' common model tests on MCAN, with and without geometry."""

import unittest
import unittest.mock

import pytest
import torch
from transformers.models.auto import modeling_auto

from hf_ngsan.models.modeling_mcan import MCANForVisualQuestionAnswering, MCANModel
from tests.models.mcan.tiny import ANSWERS, random_inputs, tiny_config
from tests.transformers_suite import MISSING, import_suite, is_available

if not is_available():
    pytest.skip(MISSING, allow_module_level=True)

common = import_suite("test_modeling_common")


class MCANTester:
    """Sizes and random inputs in the form that the common tests ask for."""

    batch_size, seq_length, num_hidden_layers, hidden_size, num_attention_heads = 3, 5, 2, 16, 4
    encoder_seq_length, decoder_seq_length = 5, 6
    num_hidden_states_types = 2
    is_training = True

    def __init__(self, **fields):
        self.fields = fields

    def get_config(self):
        return tiny_config(**self.fields)

    def prepare_config_and_inputs_for_common(self):
        config = self.get_config()
        inputs = random_inputs([5, 3, 4], [6, 6, 2])
        return config, inputs


@pytest.mark.slow
class MCANModelTest(common.ModelTesterMixin, unittest.TestCase):
    all_model_classes = (MCANModel, MCANForVisualQuestionAnswering)
    additional_model_inputs = ["visual_features", "visual_boxes", "visual_attention_mask"]
    tester_options = {}

    def setUp(self):
        self.model_tester = MCANTester(**self.tester_options)
        # The common tests tell the base model, which has no loss, by its name in this table of built-in models.
        patcher = unittest.mock.patch.dict(modeling_auto.MODEL_MAPPING_NAMES, {"mcan": MCANModel.__name__})
        patcher.start()
        self.addCleanup(patcher.stop)

    def _prepare_for_class(self, inputs_dict, model_class, return_labels=False):
        inputs = super()._prepare_for_class(inputs_dict, model_class, return_labels=return_labels)
        if return_labels and model_class is MCANForVisualQuestionAnswering:
            numbers = torch.arange(self.model_tester.batch_size * len(ANSWERS))
            inputs["labels"] = (numbers % 7 / 6).reshape(-1, len(ANSWERS))
        return inputs


@pytest.mark.slow
class GeometryAwareModelTest(MCANModelTest):
    tester_options = {"geometric_bias": ["content", "query", "key"], "geometry_features": "signed"}
