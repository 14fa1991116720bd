"""transformers' common model tests on the dual encoder and its text encoder."""

import unittest
import unittest.mock

import pytest
import torch

from hf_ngsan.models.configuration_mhsan import MHSANTextConfig
from hf_ngsan.models.modeling_mhsan import MHSANModel, MHSANTextModel
from tests.models.mhsan.tiny import BERT, TEXT, VISION, tiny_config
from tests.transformers_suite import MISSING, import_suite, is_available

if not is_available():
    pytest.skip(MISSING, allow_module_level=True)

common = import_suite("test_modeling_common")


class MHSANTester:
    """Sizes and random inputs in the form that the common tests ask for."""

    batch_size, seq_length, num_hidden_layers, hidden_size = 3, 5, 2, 16
    is_training = True

    def __init__(self, **fields):
        self.fields = fields

    def get_config(self):
        return tiny_config(**self.fields)

    def words(self):
        ids = torch.randint(4, TEXT["vocab_size"], (self.batch_size, self.seq_length))
        mask = torch.ones_like(ids)
        mask[1, -2:] = 0
        return {"input_ids": ids, "attention_mask": mask}

    def prepare_config_and_inputs_for_common(self):
        config = self.get_config()
        if config.vision_config is None:
            visual = {"visual_features": torch.rand(self.batch_size, 6, config.visual_feature_size)}
        else:
            visual = {"pixel_values": torch.rand(self.batch_size, 3, 24, 32)}
        return config, {**self.words(), **visual}


class TextTester(MHSANTester):
    is_training = False

    def get_config(self):
        sizes = {**TEXT, "word_embedding_size": self.hidden_size}
        return MHSANTextConfig(**{**sizes, **self.fields})

    def prepare_config_and_inputs_for_common(self):
        return self.get_config(), self.words()


class MHSANTextModelTest(common.ModelTesterMixin, unittest.TestCase):
    all_model_classes = (MHSANTextModel,)
    has_attentions = False
    tester_options = {"bidirectional": True}

    def setUp(self):
        self.model_tester = TextTester(**self.tester_options)


class MHSANModelTest(common.ModelTesterMixin, unittest.TestCase):
    all_model_classes = (MHSANModel,)
    has_attentions = False
    tester_options = {"vision_config": VISION}

    def setUp(self):
        self.model_tester = MHSANTester(**self.tester_options)

    def _prepare_for_class(self, inputs_dict, model_class, return_labels=False):
        inputs = super()._prepare_for_class(inputs_dict, model_class, return_labels=return_labels)
        return {**inputs, "return_loss": True} if return_labels else inputs

    # As in the tests of CLIP: a dual encoder has the states of two encoders, and words of one of them.

    @unittest.skip("the two encoders have hidden states of their own")
    def test_hidden_states_output(self):
        pass

    @unittest.skip("the two encoders have hidden states of their own")
    def test_retain_grad_hidden_states_attentions(self):
        pass

    def _image_features_get_expected_num_hidden_states(self, model_tester=None):
        return len(VISION["backbone_config"]["depths"])

    skip_test_image_features_output_shape = True  # tests/models/mhsan/test_contracts.py has it


@pytest.mark.slow
class FeaturesModelTest(MHSANModelTest):
    """The model of visual features without attention, with recurrent units in both directions."""

    tester_options = {"num_image_heads": 0, "num_text_heads": 0, "text": {"bidirectional": True}, "loss": "info_nce"}

    def _image_features_prepare_config_and_inputs(self):
        config, inputs = self.model_tester.prepare_config_and_inputs_for_common()
        return config, {"visual_features": inputs["visual_features"]}

    @unittest.skip("it asks for pixels")
    def test_get_image_features_output_0(self):
        pass

    test_get_image_features_output_1 = test_get_image_features_output_2 = test_get_image_features_output_0

    @unittest.skip("there is no backbone")
    def test_get_image_features_hidden_states(self):
        pass


@pytest.mark.slow
class BertModelTest(MHSANModelTest):
    """An encoder of transformers in place of words and recurrent units."""

    tester_options = {"vision_config": VISION, "text_config": BERT}
