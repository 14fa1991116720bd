"""transformers' common processor tests on the spatial captioner."""

import unittest

import numpy as np
import pytest

from hf_ngsan.models.image_processing_captioning import CaptioningImageProcessor
from hf_ngsan.models.processing_spatial_captioner import SpatialCaptionerProcessor
from tests.models.tiny import tiny_tokenizer
from tests.transformers_suite import MISSING, import_suite, is_available

if not is_available():
    pytest.skip(MISSING, allow_module_level=True)

ProcessorTesterMixin = import_suite("test_processing_common").ProcessorTesterMixin


class SpatialCaptionerProcessorTest(ProcessorTesterMixin, unittest.TestCase):
    processor_class = SpatialCaptionerProcessor
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
        features, boxes = np.zeros((3, 12), dtype=np.float32), np.array([[0.1, 0.2, 0.3, 0.4]] * 3, dtype=np.float32)
        with_features = processor(text=text, visual_features=features, visual_boxes=boxes)
        with_images = processor(text=text, images=self.prepare_images_inputs(batch_size=1))
        self.assertEqual({*with_features, *with_images, "pixel_mask"}, set(processor.model_input_names))

    def test_subprocessor_defaults_0_text(self):
        self.skipTest("the original takes attention_mask for the words' mask; here it is the cells' mask")
