"""transformers' common processor tests on the NG-SAN family, with and without an image processor."""

import inspect
import unittest

from hf_ngsan.models.modeling_ngsan import NGSANForConditionalGeneration
from hf_ngsan.models.processing_ngsan import NGSANProcessor
from tests.models.captioner_suite import CaptionerProcessorTest


class NGSANProcessorTest(CaptionerProcessorTest, unittest.TestCase):
    processor_class = NGSANProcessor

    def test_the_model_takes_what_the_processor_gives(self):
        taken = set(inspect.signature(NGSANForConditionalGeneration.forward).parameters)
        self.assertLessEqual(set(self.get_processor().model_input_names), taken)
