"""transformers' common processor tests on the NG-SAN family, with and without an image processor."""

import inspect
import unittest

import pytest

from hf_ngsan.models.image_processing_captioning import CaptioningImageProcessor
from hf_ngsan.models.processing_ngsan import NGSANProcessor
from tests.models.tiny import random_images, tiny_tokenizer
from tests.transformers_suite import MISSING, import_suite, is_available

if not is_available():
    pytest.skip(MISSING, allow_module_level=True)

ProcessorTesterMixin = import_suite("test_processing_common").ProcessorTesterMixin


class NGSANProcessorTest(ProcessorTesterMixin, unittest.TestCase):
    processor_class = NGSANProcessor
    text_input_name = "decoder_input_ids"

    @classmethod
    def _setup_tokenizer(cls):
        return tiny_tokenizer()

    @classmethod
    def _setup_image_processor(cls):
        return CaptioningImageProcessor(size={"height": 32, "width": 48})

    def test_model_input_names(self):
        """The original asks for all names at once; images and features stand in for each other."""
        processor, features = self.get_processor(), random_images([3])
        text = self.prepare_text_inputs(batch_size=1)
        with_features = processor(
            text=text, visual_features=features["visual_features"], visual_boxes=features["visual_boxes"]
        )
        with_images = processor(text=text, images=self.prepare_images_inputs(batch_size=1))
        self.assertEqual({*with_features, *with_images, "pixel_mask"}, set(processor.model_input_names))
        self.assertLessEqual(set(processor.model_input_names), {*inspect_forward(), "pixel_values", "pixel_mask"})

    def test_subprocessor_defaults_0_text(self):
        self.skipTest("the original takes attention_mask for the words' mask; here it is the regions' mask")


def inspect_forward() -> set[str]:
    from hf_ngsan.models.modeling_ngsan import NGSANForConditionalGeneration

    return set(inspect.signature(NGSANForConditionalGeneration.forward).parameters)
