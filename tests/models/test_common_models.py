"""transformers' common tests of models: for the smallest configuration of every architecture; slow tests for others."""

import unittest
import unittest.mock

import pytest
import torch
from transformers.models.auto import modeling_auto

from hf_ngsan.models.configuration_nsa_transformer import NSATransformerConfig
from hf_ngsan.models.configuration_rstnet import RSTNetLanguageModelConfig
from hf_ngsan.models.modeling_mcan import MCANForVisualQuestionAnswering, MCANModel
from hf_ngsan.models.modeling_mhsan import MHSANModel
from hf_ngsan.models.modeling_mhsan_text import MHSANTextConfig, MHSANTextModel
from hf_ngsan.models.modeling_ngsan import NGSANForConditionalGeneration, NGSANModel
from hf_ngsan.models.modeling_nsa_transformer import NSATransformerForConditionalGeneration, NSATransformerModel
from hf_ngsan.models.modeling_rstnet import RSTNetForConditionalGeneration, RSTNetModel
from hf_ngsan.models.modeling_rstnet_language_model import RSTNetLanguageModel
from hf_ngsan.models.modeling_spatial_captioner import SpatialCaptionerForConditionalGeneration, SpatialCaptionerModel
from tests.models.mcan import tiny as mcan
from tests.models.mhsan import tiny as mhsan
from tests.models.rstnet.tiny import SIZES, TEXT_ENCODER
from tests.models.tiny import random_boxes
from tests.transformers_suite import MISSING, import_suite, is_available

if not is_available():
    pytest.skip(MISSING, allow_module_level=True)

common = import_suite("test_modeling_common")
generation = import_suite("generation.test_utils")


class ModelTester:
    """Sizes and random inputs in the form that the common tests expect."""

    batch_size, seq_length = 3, 6
    encoder_seq_length = decoder_seq_length = key_length = decoder_key_length = seq_length
    hidden_size, num_hidden_layers, num_attention_heads = 32, 2, 4
    is_training = True

    def __init__(self, **fields):
        self.fields = fields

    def words(self, smallest: int, vocab_size: int) -> dict[str, torch.Tensor]:
        """Words; one row has padding at its end."""
        words = torch.randint(smallest, vocab_size, (self.batch_size, self.seq_length))
        mask = torch.ones_like(words)
        mask[1, -2:] = 0
        return {"input_ids": words, "attention_mask": mask}


class CommonModelTest(common.ModelTesterMixin):
    """The common tests of `all_model_classes`, whose base and head are distinguished by names in `auto_tables`."""

    make_tester: type[ModelTester]
    tester_options: dict = {}
    auto_tables: tuple[dict, ...] = ()

    def setUp(self):
        self.model_tester = self.make_tester(**self.tester_options)
        for table, kind in zip(self.auto_tables, self.all_model_classes, strict=False):
            patcher = unittest.mock.patch.dict(table, {kind.config_class.model_type: kind.__name__})
            patcher.start()
            self.addCleanup(patcher.stop)


class CaptionerTester(ModelTester):
    """The common tests use the length of the mask of visual tokens as that of the words, so both are equal."""

    def __init__(self, config_class: type, with_mask: bool, with_boxes: bool, **fields):
        super().__init__(**fields)
        self.config_class, self.with_mask, self.with_boxes = config_class, with_mask, with_boxes
        self.encoder_seq_length = self.key_length = self.seq_length if with_mask else self.seq_length - 1
        self.words_as_input_ids = False

    def get_config(self):
        sizes = {"vocab_size": 99, "vision_config": None, "visual_feature_size": 7, "intermediate_size": 37}
        return self.config_class(**{"hidden_size": 32, "num_attention_heads": 4, **sizes, **self.fields})

    def visual_inputs(self, config) -> dict[str, torch.Tensor]:
        inputs = {"visual_features": torch.rand(self.batch_size, self.encoder_seq_length, config.visual_feature_size)}
        if self.with_boxes:
            inputs["visual_boxes"] = random_boxes(self.batch_size, self.encoder_seq_length)
        return inputs

    def prepare_config_and_inputs_for_common(self):
        config, words = self.get_config(), self.words(3, 99)
        words["input_ids"][:, 0] = config.decoder_start_token_id
        inputs = {
            **self.visual_inputs(config),
            "decoder_input_ids": words["input_ids"],
            "decoder_attention_mask": torch.ones_like(words["input_ids"]),
        }
        if self.with_mask:
            inputs["attention_mask"] = words["attention_mask"]
        return config, {**inputs, "input_ids": words["input_ids"]} if self.words_as_input_ids else inputs


class CaptionerModelTest(CommonModelTest, generation.GenerationTesterMixin):
    is_encoder_decoder = True
    test_can_init_all_missing_weights_before_2023 = True
    make_tester = CaptionerTester
    auto_tables = (modeling_auto.MODEL_MAPPING_NAMES, modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES)

    def setUp(self):
        if "config_class" not in self.tester_options:
            self.tester_options = {**self.tester_options, "config_class": self.all_model_classes[0].config_class}
        super().setUp()

    def _prepare_for_class(self, inputs_dict, model_class, return_labels=False):
        inputs = super()._prepare_for_class(inputs_dict, model_class, return_labels=return_labels)
        return {name: value for name, value in inputs.items() if name != "input_ids"}

    # These two change the words in place, by the name that models of text use.

    def test_resize_tokens_embeddings(self):
        self.model_tester.words_as_input_ids = True
        super().test_resize_tokens_embeddings()

    def test_resize_embeddings_untied(self):
        self.model_tester.words_as_input_ids = True
        super().test_resize_embeddings_untied()


class NGSANModelTest(CaptionerModelTest, unittest.TestCase):
    all_model_classes = (NGSANModel, NGSANForConditionalGeneration)
    additional_model_inputs = ("visual_boxes",)
    sizes = {"num_hidden_layers": 2, "geometry_hidden_size": 8}
    tester_options = {"with_mask": True, "with_boxes": True, **sizes}


class SpatialCaptionerModelTest(CaptionerModelTest, unittest.TestCase):
    all_model_classes = (SpatialCaptionerModel, SpatialCaptionerForConditionalGeneration)
    sizes = {"encoder_layers": 2, "decoder_layers": 2}
    tester_options = {"with_mask": True, "with_boxes": False, **sizes}


class RSTNetModelTest(CaptionerModelTest, unittest.TestCase):
    """Without language model and geometry (table 1, first row)."""

    all_model_classes = (RSTNetModel, RSTNetForConditionalGeneration)
    tester_options = {
        **{"with_mask": True, "with_boxes": False, "geometry_fusion": None, "adaptive_attention": False},
        **{"encoder_layers": 2, "plain_decoder_layers": 2},
    }


class LanguageModelTester(ModelTester):
    num_hidden_layers = 1

    def get_config(self):
        return RSTNetLanguageModelConfig(**{**SIZES, "vocab_size": 30, "text_encoder_config": TEXT_ENCODER})

    def prepare_config_and_inputs_for_common(self):
        return self.get_config(), self.words(3, 30)


class RSTNetLanguageModelTest(CommonModelTest, unittest.TestCase):
    all_model_classes = (RSTNetLanguageModel,)
    make_tester = LanguageModelTester
    test_resize_embeddings = False  # words have pieces: see resize_vocabulary

    def _prepare_for_class(self, inputs_dict, model_class, return_labels=False):
        inputs = super()._prepare_for_class(inputs_dict, model_class, return_labels=return_labels)
        return {**inputs, "labels": inputs["input_ids"]} if return_labels else inputs

    @unittest.skip("the language model reads words, not embeddings")
    def test_inputs_embeds(self):
        pass

    test_inputs_embeds_matches_input_ids = test_inputs_embeds


class TranslatorTester(ModelTester):
    def get_config(self):
        sizes = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 4}
        return NSATransformerConfig(**sizes, intermediate_size=37, **self.fields)

    def prepare_config_and_inputs_for_common(self):
        source, target = self.words(3, 99), self.words(3, 99)
        return self.get_config(), {**source, **{f"decoder_{name}": value for name, value in target.items()}}


class NSATransformerModelTest(CommonModelTest, generation.GenerationTesterMixin, unittest.TestCase):
    all_model_classes = (NSATransformerModel, NSATransformerForConditionalGeneration)
    is_encoder_decoder = True
    test_can_init_all_missing_weights_before_2023 = True
    make_tester = TranslatorTester
    auto_tables = (modeling_auto.MODEL_MAPPING_NAMES, modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES)

    @unittest.skip("the embeddings of source, target and output are one matrix")
    def test_resize_embeddings_untied(self):
        pass

    test_load_save_without_tied_weights = test_resize_embeddings_untied


class MCANTester(ModelTester):
    seq_length = encoder_seq_length = key_length = 5
    hidden_size, num_hidden_states_types = 16, 2

    def get_config(self):
        return mcan.tiny_config(**self.fields)

    def prepare_config_and_inputs_for_common(self):
        return self.get_config(), mcan.random_inputs([5, 3, 4], [6, 6, 2])


class MCANModelTest(CommonModelTest, unittest.TestCase):
    all_model_classes = (MCANModel, MCANForVisualQuestionAnswering)
    additional_model_inputs = ["visual_features", "visual_boxes", "visual_attention_mask"]
    make_tester = MCANTester
    auto_tables = (modeling_auto.MODEL_MAPPING_NAMES,)

    def setUp(self):
        super().setUp()
        if "sdpa_inference" in self._testMethodName:  # else it would pass words to the decoder of images
            self.model_tester.fields["is_encoder_decoder"] = False

    def _prepare_for_class(self, inputs_dict, model_class, return_labels=False):
        inputs = super()._prepare_for_class(inputs_dict, model_class, return_labels=return_labels)
        if return_labels and model_class is MCANForVisualQuestionAnswering:
            inputs["labels"] = (torch.arange(3 * len(mcan.ANSWERS)) % 7 / 6).reshape(3, -1)
        return inputs


class MHSANTester(ModelTester):
    seq_length = encoder_seq_length = key_length = 5
    hidden_size = 16

    def get_config(self):
        return mhsan.tiny_config(**self.fields)

    def prepare_config_and_inputs_for_common(self):
        config, visual = self.get_config(), {"pixel_values": torch.rand(self.batch_size, 3, 24, 32)}
        if config.vision_config is None:
            visual = {"visual_features": torch.rand(self.batch_size, 6, config.visual_feature_size)}
        return config, {**self.words(4, mhsan.VOCAB_SIZE), **visual}


class MHSANTextTester(MHSANTester):
    is_training = False

    def get_config(self):
        return MHSANTextConfig(**{**mhsan.TEXT, "word_embedding_size": self.hidden_size, **self.fields})

    def prepare_config_and_inputs_for_common(self):
        return self.get_config(), self.words(4, mhsan.VOCAB_SIZE)


class MHSANTextModelTest(CommonModelTest, unittest.TestCase):
    all_model_classes = (MHSANTextModel,)
    has_attentions = False
    make_tester = MHSANTextTester
    tester_options = {"bidirectional": True}


class MHSANModelTest(CommonModelTest, unittest.TestCase):
    all_model_classes = (MHSANModel,)
    has_attentions = False
    make_tester = MHSANTester
    tester_options = {"vision_config": mhsan.VISION}
    skip_test_image_features_output_shape = True  # tested in tests/models/mhsan/test_contracts.py

    def _prepare_for_class(self, inputs_dict, model_class, return_labels=False):
        inputs = super()._prepare_for_class(inputs_dict, model_class, return_labels=return_labels)
        return {**inputs, "return_loss": True} if return_labels else inputs

    @unittest.skip("the two encoders have hidden states of their own, as those of CLIP")
    def test_hidden_states_output(self):
        pass

    test_retain_grad_hidden_states_attentions = test_hidden_states_output

    def _image_features_get_expected_num_hidden_states(self, model_tester=None):
        return len(mhsan.VISION["backbone_config"]["depths"])
