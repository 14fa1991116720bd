"""transformers' common tests of models and processors, as they fit every captioner."""

import unittest

import pytest
import torch
from transformers.models.auto import modeling_auto

from hf_ngsan.models.image_processing_captioning import CaptioningImageProcessor
from tests.models.tiny import random_boxes, tiny_tokenizer
from tests.transformers_suite import MISSING, import_suite, is_available

if not is_available():
    pytest.skip(MISSING, allow_module_level=True)

common = import_suite("test_modeling_common")
generation = import_suite("generation.test_utils")
processing = import_suite("test_processing_common")


class CaptionerTester:
    """Sizes and random inputs in the form that the common tests ask for.

    Given a mask of the visual tokens, the common tests take its length for that of the words: then the two are the
    same.
    """

    batch_size = 3
    seq_length = 6
    num_hidden_layers = 2
    num_attention_heads = 4
    hidden_size = 32
    is_training = True

    def __init__(self, config_class: type, with_mask: bool, with_boxes: bool, **fields):
        self.config_class = config_class
        self.with_mask = with_mask
        self.with_boxes = with_boxes
        self.encoder_seq_length = self.key_length = self.seq_length if with_mask else self.seq_length - 1
        self.decoder_key_length = self.seq_length
        self.fields = fields
        self.words_as_input_ids = False

    def get_config(self):
        sizes = {
            "vocab_size": 99,
            "vision_config": None,
            "visual_feature_size": 7,
            "hidden_size": self.hidden_size,
            "num_attention_heads": self.num_attention_heads,
            "intermediate_size": 37,
        }
        return self.config_class(**{**sizes, **self.fields})

    def visual_inputs(self, config) -> dict[str, torch.Tensor]:
        inputs = {"visual_features": torch.rand(self.batch_size, self.encoder_seq_length, config.visual_feature_size)}
        if self.with_boxes:
            inputs["visual_boxes"] = random_boxes(self.batch_size, self.encoder_seq_length)
        return inputs

    def prepare_config_and_inputs_for_common(self):
        config = self.get_config()
        words = torch.randint(3, config.vocab_size, (self.batch_size, self.seq_length))
        words[:, 0] = config.decoder_start_token_id
        inputs = {
            **self.visual_inputs(config),
            "decoder_input_ids": words,
            "decoder_attention_mask": torch.ones_like(words),
        }
        if self.with_mask:
            inputs["attention_mask"] = torch.ones(self.batch_size, self.encoder_seq_length, dtype=torch.long)
            inputs["attention_mask"][1, -2:] = 0
        return config, {**inputs, "input_ids": words} if self.words_as_input_ids else inputs


class PixelTester(CaptionerTester):
    """Images in place of features; the vision encoder makes as many cells of them."""

    def visual_inputs(self, config) -> dict[str, torch.Tensor]:
        return {"pixel_values": torch.rand(self.batch_size, 3, 16, 24)}


class CaptionerModelTest(common.ModelTesterMixin, generation.GenerationTesterMixin):
    """The common tests of a base model and its captioner, `all_model_classes`, with `tester_options`."""

    is_encoder_decoder = True
    test_can_init_all_missing_weights_before_2023 = True
    make_tester = CaptionerTester

    def setUp(self):
        base, captioner = self.all_model_classes
        self.model_tester = self.make_tester(base.config_class, **self.tester_options)
        # The common tests tell base model and captioner apart by their names in these tables of built-in models.
        for table, name in (
            (modeling_auto.MODEL_MAPPING_NAMES, base.__name__),
            (modeling_auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES, captioner.__name__),
        ):
            patcher = unittest.mock.patch.dict(table, {base.config_class.model_type: name})
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


class CaptionerProcessorTest(processing.ProcessorTesterMixin):
    """The common tests of `processor_class`."""

    text_input_name = "decoder_input_ids"

    @classmethod
    def _setup_tokenizer(cls):
        return tiny_tokenizer()

    @classmethod
    def _setup_image_processor(cls):
        return CaptioningImageProcessor(size={"height": 32, "width": 48})

    def test_model_input_names(self):
        """The original asks for all names at once; images and features stand in for each other."""
        processor, text = self.get_processor(), self.prepare_text_inputs(batch_size=1)
        with_features = processor(text=text, visual_features=torch.rand(3, 12), visual_boxes=random_boxes(3))
        with_images = processor(text=text, images=self.prepare_images_inputs(batch_size=1))
        self.assertEqual({*with_features, *with_images, "pixel_mask"}, set(processor.model_input_names))

    def test_processor_text_has_no_visual(self):
        self.skipTest("a caption is always that of an image")

    def test_subprocessor_defaults_0_text(self):
        self.skipTest("the original takes attention_mask for the words' mask; here it is the visual tokens' mask")
