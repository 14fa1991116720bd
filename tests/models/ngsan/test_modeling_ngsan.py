"""transformers' common model tests on the NG-SAN family."""

import unittest

import pytest
import torch
from transformers.models.auto import modeling_auto

from hf_ngsan.models.configuration_ngsan import NGSANConfig
from hf_ngsan.models.modeling_ngsan import NGSANForConditionalGeneration, NGSANModel
from tests.models.tiny import random_boxes
from tests.transformers_suite import MISSING, import_suite, is_available

if not is_available():
    pytest.skip(MISSING, allow_module_level=True)

common = import_suite("test_modeling_common")
generation = import_suite("generation.test_utils")


class NGSANModelTester:
    """Sizes and random inputs in the form that the common tests ask for.

    Given a mask of the regions, the common tests take its length for that of the words: then the two are the same.
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

    def get_config(self) -> NGSANConfig:
        sizes = {
            "vocab_size": 99,
            "visual_feature_size": 7,
            "hidden_size": self.hidden_size,
            "num_hidden_layers": self.num_hidden_layers,
            "num_attention_heads": self.num_attention_heads,
            "intermediate_size": 37,
            "geometry_hidden_size": 8,
        }
        return NGSANConfig(**sizes, **self.fields)

    def prepare_config_and_inputs_for_common(self) -> tuple[NGSANConfig, dict[str, torch.Tensor]]:
        config = self.get_config()
        words = torch.randint(3, config.vocab_size, (self.batch_size, self.seq_length))
        words[:, 0] = config.decoder_start_token_id
        inputs = {
            "visual_features": torch.rand(self.batch_size, self.encoder_seq_length, config.visual_feature_size),
            "visual_boxes": random_boxes(self.batch_size, self.encoder_seq_length),
            "decoder_input_ids": words,
            "decoder_attention_mask": torch.ones_like(words),
        }
        if self.with_mask:
            inputs["attention_mask"] = torch.ones(self.batch_size, self.encoder_seq_length, dtype=torch.long)
            inputs["attention_mask"][1, -2:] = 0
        return config, {**inputs, "input_ids": words} if self.words_as_input_ids else inputs


class NGSANModelTest(common.ModelTesterMixin, generation.GenerationTesterMixin, unittest.TestCase):
    all_model_classes = (NGSANModel, NGSANForConditionalGeneration)
    additional_model_inputs = ("visual_boxes",)
    is_encoder_decoder = True
    test_can_init_all_missing_weights_before_2023 = True
    tester_options = {"with_mask": True}

    def setUp(self):
        self.model_tester = NGSANModelTester(**self.tester_options)
        # The common tests tell base model and captioner apart by their names in these tables of built-in models.
        for table, name in (
            (modeling_auto.MODEL_MAPPING_NAMES, "NGSANModel"),
            (modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES, "NGSANForConditionalGeneration"),
        ):
            patcher = unittest.mock.patch.dict(table, {"ngsan": name})
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


class EveryOptionModelTest(NGSANModelTest):
    """All kinds of bias, norms with parameters and with running statistics, absolute geometry, one word matrix."""

    tester_options = {
        "with_mask": False,
        "query_norm": "instance",
        "key_norm": "batch",
        "norm_affine": True,
        "geometric_bias": ["content", "query", "key"],
        "geometry_features": "signed",
        "absolute_geometry": True,
        "tie_word_embeddings": True,
    }
