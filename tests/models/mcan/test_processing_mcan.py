"""The processor of MCAN: questions as the release splits them, what it refuses."""

import pytest
import torch

from tests.models.mcan.tiny import tiny_processor
from tests.models.tiny_photos import PHOTOS
from tests.tables import each_row


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


@each_row(
    ("arguments", "message"),
    [
        ({"text": ["a ball", " ?!"]}, "Text 1"),
        ({"text": ["a ball"], "images": PHOTOS[:2]}, r"2 .* 1 "),
        ({"text": ["a", "a"], "visual_features": torch.ones(1, 12)}, r"1 .* 2 "),
        ({"images": PHOTOS[:1], "visual_features": torch.ones(1, 12)}, "visual_features"),
        ({"visual_boxes": torch.zeros(1, 4)}, "visual_boxes"),
    ],
)
def test_what_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        tiny_processor(pixels=True)(**arguments)
