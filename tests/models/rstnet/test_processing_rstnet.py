"""transformers' common processor tests on RSTNet."""

import unittest

from hf_ngsan.models.processing_rstnet import RSTNetProcessor
from tests.models.captioner_suite import CaptionerProcessorTest


class RSTNetProcessorTest(CaptionerProcessorTest, unittest.TestCase):
    processor_class = RSTNetProcessor
