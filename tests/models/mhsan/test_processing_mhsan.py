"""The processor of the dual encoder: transformers' common tests, and what it refuses."""

import inspect
import unittest

import pytest
import torch

from hf_ngsan.models.modeling_mhsan import MHSANModel
from hf_ngsan.models.processing_mhsan import MHSANProcessor
from tests.models.mhsan.tiny import tiny_processor
from tests.models.tiny_photos import PHOTOS
from tests.transformers_suite import is_available

if is_available():
    from tests.models.captioner_suite import CaptionerProcessorTest

    class MHSANProcessorTest(CaptionerProcessorTest, unittest.TestCase):
        processor_class = MHSANProcessor
        text_input_name = "input_ids"

        def test_model_input_names(self):
            """The original asks for all names at once; images and features stand in for each other."""
            processor, text = self.get_processor(), self.prepare_text_inputs(batch_size=1)
            with_features = processor(text=text, visual_features=torch.rand(3, 12), visual_boxes=torch.rand(3, 4) * 0)
            with_images = processor(text=text, images=self.prepare_images_inputs(batch_size=1))
            self.assertEqual({*with_features, *with_images, "pixel_mask"}, set(processor.model_input_names))
            taken = set(inspect.signature(MHSANModel.forward).parameters)
            self.assertLessEqual(set(processor.model_input_names), taken)


def test_texts_and_features_are_padded():
    batch = tiny_processor()(text=["red ball", "a blue box"], visual_features=[torch.ones(3, 12), torch.ones(2, 12)])
    assert batch["input_ids"].tolist() == [[5, 8, 0], [4, 6, 9]]
    assert batch["attention_mask"].tolist() == [[1, 1, 0], [1, 1, 1]]
    assert batch["visual_features"].shape == (2, 3, 12)
    assert batch["visual_attention_mask"].tolist() == [[1, 1, 1], [1, 1, 0]]


def test_a_long_text_is_cut_only_if_asked_for():
    processor = tiny_processor()
    processor.tokenizer.model_max_length = 3
    with pytest.raises(ValueError, match=r"Text 1 .* 4 tokens.* 3 at most"):
        processor(text=["a ball", "a red ball near"])
    assert processor(text=["a red ball near"], truncation=True)["input_ids"].shape == (1, 3)
    assert processor(text=["a red"], truncation=True, max_length=1)["input_ids"].shape == (1, 1)
    assert processor.tokenizer.backend_tokenizer.truncation is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({}, "Nothing to process"),
        ({"text": []}, "text is empty"),
        ({"text": ["a ball", " "]}, "Text 1 .* no words"),
        ({"text": ["a ball", 7]}, "Text 1 .*int"),
        ({"text": 7}, "text is int"),
        ({"text": "\ud800"}, "The text .*surrogate"),
        ({"images": []}, "images is empty"),
        ({"images": PHOTOS[:1], "visual_features": torch.ones(1, 12)}, "not both"),
        ({"visual_boxes": torch.zeros(1, 4)}, "without visual_features"),
        ({"visual_features": torch.ones(12)}, "visual_features"),
    ],
)
def test_what_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        tiny_processor(pixels=True)(**arguments)


def test_without_an_image_processor_there_are_no_images():
    with pytest.raises(ValueError, match="image_processor=CaptioningImageProcessor"):
        tiny_processor()(images=PHOTOS[:1])
