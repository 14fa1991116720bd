"""transformers' common model tests on the spatial captioner."""

import unittest

import pytest
import torch
from transformers.models.auto import modeling_auto

from hf_ngsan.models.configuration_spatial_captioner import SpatialCaptionerConfig
from hf_ngsan.models.modeling_spatial_captioner import SpatialCaptionerForConditionalGeneration, SpatialCaptionerModel
from tests.transformers_suite import MISSING, import_suite, is_available

if not is_available():
    pytest.skip(MISSING, allow_module_level=True)

common = import_suite("test_modeling_common")
generation = import_suite("generation.test_utils")


class SpatialCaptionerModelTester:
    """Sizes and random inputs in the form that the common tests ask for.

    Given a mask of the cells, the common tests take its length for that of the words: then the two are the same.
    """

    batch_size = 3
    seq_length = 6
    num_hidden_layers = 2
    num_attention_heads = 4
    hidden_size = 32
    is_training = True

    def __init__(self, with_mask: bool, **fields):
        self.with_mask = with_mask
        self.encoder_seq_length = self.key_length = self.seq_length if with_mask else self.seq_length - 1
        self.decoder_key_length = self.seq_length
        self.fields = fields
        self.words_as_input_ids = False

    def get_config(self) -> SpatialCaptionerConfig:
        sizes = {
            "vocab_size": 99,
            "vision_config": None,
            "visual_feature_size": 7,
            "hidden_size": self.hidden_size,
            "encoder_layers": self.num_hidden_layers,
            "decoder_layers": self.num_hidden_layers,
            "num_attention_heads": self.num_attention_heads,
            "intermediate_size": 37,
        }
        return SpatialCaptionerConfig(**{**sizes, **self.fields})

    def prepare_config_and_inputs_for_common(self) -> tuple[SpatialCaptionerConfig, dict[str, torch.Tensor]]:
        config = self.get_config()
        words = torch.randint(3, config.vocab_size, (self.batch_size, self.seq_length))
        words[:, 0] = config.decoder_start_token_id
        inputs = {
            "visual_features": torch.rand(self.batch_size, self.encoder_seq_length, config.visual_feature_size),
            "decoder_input_ids": words,
            "decoder_attention_mask": torch.ones_like(words),
        }
        if self.with_mask:
            inputs["attention_mask"] = torch.ones(self.batch_size, self.encoder_seq_length, dtype=torch.long)
            inputs["attention_mask"][1, -2:] = 0
        return config, {**inputs, "input_ids": words} if self.words_as_input_ids else inputs


class SpatialCaptionerModelTest(common.ModelTesterMixin, generation.GenerationTesterMixin, unittest.TestCase):
    all_model_classes = (SpatialCaptionerModel, SpatialCaptionerForConditionalGeneration)
    is_encoder_decoder = True
    test_can_init_all_missing_weights_before_2023 = True
    make_tester = SpatialCaptionerModelTester
    tester_options = {"with_mask": True}

    def setUp(self):
        self.model_tester = self.make_tester(**self.tester_options)
        # The common tests tell base model and captioner apart by their names in these tables of built-in models.
        for table, name in (
            (modeling_auto.MODEL_MAPPING_NAMES, "SpatialCaptionerModel"),
            (modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES, "SpatialCaptionerForConditionalGeneration"),
        ):
            patcher = unittest.mock.patch.dict(table, {"spatial_captioner": name})
            patcher.start()
            self.addCleanup(patcher.stop)

    def _prepare_for_class(self, inputs_dict, model_class, return_labels=False):
        inputs = super()._prepare_for_class(inputs_dict, model_class, return_labels=return_labels)
        return {name: value for name, value in inputs.items() if name != "input_ids"}

    # These two change the words in place, by the name that models over text give them.

    def test_resize_tokens_embeddings(self):
        self.model_tester.words_as_input_ids = True
        super().test_resize_tokens_embeddings()

    def test_resize_embeddings_untied(self):
        self.model_tester.words_as_input_ids = True
        super().test_resize_embeddings_untied()


class EveryOptionModelTest(SpatialCaptionerModelTest):
    """The other choices: plain temperature, biases, no projection of features, dropout everywhere, tied words."""

    tester_options = {
        "with_mask": False,
        "attention_temperature": "head_dim",
        "attention_bias": True,
        "residual_dropout": 0.1,
        "visual_feature_size": 32,
        "tie_word_embeddings": True,
    }

    def test_retain_grad_hidden_states_attentions(self):
        """The original wants a gradient of the first hidden states: here they are the features, which then need one."""
        inputs = self.model_tester.prepare_config_and_inputs_for_common()[1]
        inputs["visual_features"].requires_grad_()
        with unittest.mock.patch.object(
            self.model_tester,
            "prepare_config_and_inputs_for_common",
            lambda: (self.model_tester.get_config(), inputs),
        ):
            super().test_retain_grad_hidden_states_attentions()


class PixelModelTester(SpatialCaptionerModelTester):
    """Images in place of features; the vision part makes as many cells of them."""

    def prepare_config_and_inputs_for_common(self) -> tuple[SpatialCaptionerConfig, dict[str, torch.Tensor]]:
        config, inputs = super().prepare_config_and_inputs_for_common()
        del inputs["visual_features"]
        return config, {"pixel_values": torch.rand(self.batch_size, 3, 16, 24), **inputs}


class PixelModelTest(SpatialCaptionerModelTest):
    """The model with a vision part that is trained with it."""

    make_tester = PixelModelTester
    tester_options = {
        "with_mask": False,
        "visual_feature_size": None,
        "vision_config": {
            "backbone_config": {"model_type": "ngsan_vgg", "hidden_sizes": [4, 8], "depths": [1, 1]},
            "grid_size": [1, 5],
            "frozen": False,
        },
    }
