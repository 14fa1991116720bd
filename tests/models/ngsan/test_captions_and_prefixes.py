"""The processor: features, training captions and prefixes to what forward() and generate() take."""

import pytest
import torch
from transformers import AutoProcessor, AutoTokenizer

from hf_ngsan.models.processing_ngsan import NGSANProcessor
from tests.models.tiny import one_image, random_images, tiny_captioner, tiny_processor


@pytest.fixture
def processor():
    return tiny_processor()


@pytest.fixture
def features():
    images = random_images([3, 2])
    rows = [one_image(images, row) for row in range(2)]
    return {name: [row[name][0].numpy() for row in rows] for name in ("visual_features", "visual_boxes")}


def test_training_batch_is_what_forward_takes(processor, features):
    batch = processor(**features, captions=["a red ball", "two boxes near a ring"])
    unknown = processor.tokenizer.unk_token_id
    words = processor.tokenizer.convert_tokens_to_ids
    assert batch["labels"].tolist() == [
        [words("a"), words("red"), words("ball"), 2, -100, -100],
        [words("two"), unknown, words("near"), words("a"), words("ring"), 2],
    ]
    assert tiny_captioner()(**batch).loss.isfinite()


def test_captions_of_one_image_lie_next_to_each_other(processor):
    labels = processor(captions=[["a", "red"], ["blue", None]])["labels"]
    words = processor.tokenizer.convert_tokens_to_ids(["a", "red", "blue"])
    assert labels.tolist() == [[words[0], 2], [words[1], 2], [words[2], 2], [-100, -100]]


def test_a_lone_caption_may_come_without_a_list(processor):
    assert torch.equal(processor(captions="a red ball")["labels"], processor(captions=["a red ball"])["labels"])


def test_empty_captions_have_no_label(processor):
    assert processor(captions=["", None])["labels"].tolist() == [[-100], [-100]]


def test_prefixes_begin_with_the_start_token_and_are_padded_on_the_left(processor):
    batch = processor(text=["a red", ""])
    words = processor.tokenizer.convert_tokens_to_ids(["a", "red"])
    assert batch["decoder_input_ids"].tolist() == [[1, *words], [0, 0, 1]]
    assert batch["decoder_attention_mask"].tolist() == [[1, 1, 1], [0, 0, 1]]
    assert processor(text="")["decoder_input_ids"].tolist() == [[1]]


def test_captions_come_back_as_text(processor, features):
    batch = processor(**features, text=["a red", "the"])
    sequences = tiny_captioner().generate(**batch)
    captions = processor.batch_decode(sequences, skip_special_tokens=True)
    assert captions[0].startswith("a red")
    assert captions[1].startswith("the")
    assert processor.decode(sequences[0], skip_special_tokens=True) == captions[0]


def test_processor_survives_saving(processor, features, tmp_path):
    processor.save_pretrained(tmp_path)
    tiny_captioner().config.save_pretrained(tmp_path)
    loaded = AutoProcessor.from_pretrained(tmp_path)
    assert type(loaded) is NGSANProcessor
    inputs = {**features, "captions": ["a red ball", "unseen words"], "text": ["a", ""]}
    for ours, theirs in zip(processor(**inputs).values(), loaded(**inputs).values(), strict=True):
        assert torch.equal(ours, theirs)
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    assert tokenizer.get_vocab() == processor.tokenizer.get_vocab()
    assert tokenizer("a red ball")["input_ids"] == processor.tokenizer("a red ball")["input_ids"]
