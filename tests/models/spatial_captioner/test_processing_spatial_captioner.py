"""transformers' common processor tests on the spatial captioner."""

import unittest

from hf_ngsan.models.processing_spatial_captioner import SpatialCaptionerProcessor
from tests.models.captioner_suite import CaptionerProcessorTest


class SpatialCaptionerProcessorTest(CaptionerProcessorTest, unittest.TestCase):
    processor_class = SpatialCaptionerProcessor
