"""transformers' common processor tests on the NG-SAN family."""

import unittest

import pytest

from hf_ngsan.models.processing_ngsan import NGSANProcessor
from tests.models.tiny import random_images, tiny_tokenizer
from tests.transformers_suite import MISSING, import_suite, is_available

if not is_available():
    pytest.skip(MISSING, allow_module_level=True)

ProcessorTesterMixin = import_suite("test_processing_common").ProcessorTesterMixin


class NGSANProcessorTest(ProcessorTesterMixin, unittest.TestCase):
    processor_class = NGSANProcessor

    @classmethod
    def _setup_tokenizer(cls):
        return tiny_tokenizer()

    def prepare_images_inputs(self, batch_size=None, nested=False):
        return None  # this processor takes features of regions, not images

    def test_model_input_names(self):
        """The original asks for images; regions stand for them."""
        images = random_images([3])
        outputs = self.get_processor()(
            text="a red ball", visual_features=images["visual_features"], visual_boxes=images["visual_boxes"]
        )
        self.assertEqual(set(outputs), set(self.get_processor().model_input_names))

    def test_subprocessor_defaults_0_text(self):
        self.skipTest("the original takes attention_mask for the words' mask; here it is the regions' mask")
