"""The processor of MCAN: transformers' common tests, questions as the release splits them, what it refuses."""

import inspect
import unittest

import pytest
import torch

from hf_ngsan.models.modeling_mcan import MCANModel
from hf_ngsan.models.processing_mcan import MCANProcessor
from tests.models.mcan.tiny import tiny_processor
from tests.models.tiny_photos import PHOTOS
from tests.transformers_suite import is_available

if is_available():
    from tests.models.captioner_suite import CaptionerProcessorTest

    class MCANProcessorTest(CaptionerProcessorTest, unittest.TestCase):
        processor_class = MCANProcessor
        text_input_name = "input_ids"

        def test_model_input_names(self):
            """The original asks for all names at once; images and features stand in for each other."""
            processor, text = self.get_processor(), self.prepare_text_inputs(batch_size=1)
            with_features = processor(text=text, visual_features=torch.rand(3, 12), visual_boxes=torch.rand(3, 4) * 0)
            with_images = processor(text=text, images=self.prepare_images_inputs(batch_size=1))
            self.assertEqual({*with_features, *with_images, "pixel_mask"}, set(processor.model_input_names))
            self.assertLessEqual(set(processor.model_input_names), set(inspect.signature(MCANModel.forward).parameters))


def test_questions_are_padded_behind_their_words_and_cut():
    batch = tiny_processor(max_length=4)(
        text=["What color is the ball, left of the box?", "There's a T-shirt/box!"],
        visual_features=[torch.ones(3, 12), torch.ones(2, 12)],
    )
    assert batch["input_ids"].tolist() == [[2, 3, 4, 5], [1, 8, 1, 1]]
    assert batch["visual_attention_mask"].tolist() == [[1, 1, 1], [1, 1, 0]]
    batch = tiny_processor()(text=["a ball", "Is there: a box?"])
    assert batch["input_ids"].tolist() == [[8, 6, 0, 0], [4, 7, 8, 9]]
    assert batch["attention_mask"].tolist() == [[1, 1, 0, 0], [1, 1, 1, 1]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"text": ["a ball", " ?!"]}, "Text 1 .* no words"),
        ({"text": []}, "text is empty"),
        ({"text": ["a ball"], "images": PHOTOS[:2]}, "2 images and 1 questions"),
        ({"text": ["a", "a"], "visual_features": torch.ones(1, 12)}, "1 images and 2 questions"),
        ({"images": PHOTOS[:1], "visual_features": torch.ones(1, 12)}, "not both"),
        ({"visual_boxes": torch.zeros(1, 4)}, "without visual_features"),
    ],
)
def test_what_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        tiny_processor(pixels=True)(**arguments)
