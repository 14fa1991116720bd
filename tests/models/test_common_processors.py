"""transformers' common tests of processors on every architecture's."""

import inspect
import unittest

import pytest
import torch

from hf_ngsan.models.image_processing_captioning import CaptioningImageProcessor
from hf_ngsan.models.modeling_mcan import MCANModel
from hf_ngsan.models.modeling_mhsan import MHSANModel
from hf_ngsan.models.modeling_ngsan import NGSANForConditionalGeneration
from hf_ngsan.models.processing_mcan import MCANProcessor
from hf_ngsan.models.processing_mhsan import MHSANProcessor
from hf_ngsan.models.processing_ngsan import NGSANProcessor
from tests.models.tiny import random_boxes, tiny_tokenizer
from tests.transformers_suite import MISSING, import_suite, is_available

if not is_available():
    pytest.skip(MISSING, allow_module_level=True)

processing = import_suite("test_processing_common")


class NGSANProcessorTest(processing.ProcessorTesterMixin, unittest.TestCase):
    processor_class, model_class = NGSANProcessor, NGSANForConditionalGeneration
    text_input_name = "decoder_input_ids"

    @classmethod
    def _setup_tokenizer(cls):
        return tiny_tokenizer()

    @classmethod
    def _setup_image_processor(cls):
        return CaptioningImageProcessor(size={"height": 32, "width": 48})

    def test_flat_kwarg_applied_when_modality_dict_lacks_it(self):
        """The original passes images and videos together; here a clip replaces an image."""
        images, text = self.prepare_images_inputs(batch_size=1), self.prepare_text_inputs(batch_size=1)
        inputs = self.get_processor()(images=images, text=text, text_kwargs={}, return_tensors="pt")
        assert all(torch.is_tensor(value) for value in inputs.values())

    def test_model_input_names(self):
        """The original uses all names together; here images and features are alternatives."""
        processor, text = self.get_processor(), self.prepare_text_inputs(batch_size=1)
        with_features = processor(text=text, visual_features=torch.rand(3, 12), visual_boxes=random_boxes(3))
        with_images = processor(text=text, images=self.prepare_images_inputs(batch_size=1))
        names = set(processor.model_input_names)
        self.assertEqual({*with_features, *with_images, "pixel_mask"}, names)
        self.assertLessEqual(names, set(inspect.signature(self.model_class.forward).parameters))

    def test_processor_text_has_no_visual(self):
        self.skipTest("a text is always that of an image")

    def test_subprocessor_defaults_0_text(self):
        self.skipTest("the original takes attention_mask for the words' mask; here it is the visual tokens' mask")


class MCANProcessorTest(NGSANProcessorTest):
    processor_class, model_class = MCANProcessor, MCANModel
    text_input_name = "input_ids"


class MHSANProcessorTest(NGSANProcessorTest):
    processor_class, model_class = MHSANProcessor, MHSANModel
    text_input_name = "input_ids"
