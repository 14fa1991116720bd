"""The processor: features, training captions and prefixes to what forward() and generate() take."""

import pytest

from tests.models.tiny import one_image, random_images, tiny_processor


@pytest.fixture
def processor():
    return tiny_processor()


@pytest.fixture
def features():
    images = random_images([3, 2])
    rows = [one_image(images, row) for row in range(2)]
    return {name: [row[name][0].numpy() for row in rows] for name in ("visual_features", "visual_boxes")}


def test_captions_of_one_image_lie_next_to_each_other(processor):
    labels = processor(captions=[["a", "red"], ["blue", None]])["labels"]
    words = processor.tokenizer.convert_tokens_to_ids(["a", "red", "blue"])
    assert labels.tolist() == [[words[0], 2], [words[1], 2], [words[2], 2], [-100, -100]]


def test_empty_captions_have_no_label(processor):
    assert processor(captions=["", None])["labels"].tolist() == [[-100], [-100]]


def test_prefixes_begin_with_the_start_token_and_are_padded_on_the_left(processor):
    batch = processor(text=["a red", ""])
    words = processor.tokenizer.convert_tokens_to_ids(["a", "red"])
    assert batch["decoder_input_ids"].tolist() == [[1, *words], [0, 0, 1]]
    assert batch["decoder_attention_mask"].tolist() == [[1, 1, 1], [0, 0, 1]]
    assert processor(text="")["decoder_input_ids"].tolist() == [[1]]
