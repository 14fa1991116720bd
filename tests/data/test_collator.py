from itertools import chain

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from hf_ngsan import NGSANConfig, NGSANForConditionalGeneration, NGSANProcessor
from hf_ngsan.data import CaptionCollator, build_tokenizer, load_data
from tests.data.facts import fails_naming


def echo(**inputs):
    """A processor that returns its inputs."""
    return inputs


def make_row(image_id=0, captions=5, regions=3, boxes=True):
    row = {"image_id": image_id, "visual_features": np.full((regions, 2), image_id, dtype=np.float32)}
    if boxes:
        row["visual_boxes"] = np.tile(np.float32([0, 0, 1, 1]), (regions, 1))
    if captions is not None:
        row["captions"] = [f"{image_id}-{number}" for number in range(captions)]
    return row


def choose(rows, epoch=0, **settings):
    collator = CaptionCollator(echo, **settings)
    collator.set_epoch(epoch)
    return collator(rows)["captions"]


@given(
    st.lists(st.tuples(st.integers(-5, 10**9), st.integers(0, 8)), min_size=1, max_size=5),
    st.integers(1, 6),
    st.integers(0, 9),
    st.integers(0, 9),
)
def test_each_row_gives_as_many_captions_as_asked_all_different(rows, count, seed, epoch):
    rows = [make_row(image_id, captions) for image_id, captions in rows]
    chosen = choose(rows, epoch, captions_per_image=count, seed=seed)
    if not any(row["captions"] for row in rows):
        assert chosen is None
        return
    for row, captions in zip(rows, chosen, strict=True):
        given_ones = [caption for caption in captions if caption is not None]
        assert len(captions) == count
        assert len(given_ones) == min(count, len(row["captions"])) == len(set(given_ones))
        assert set(given_ones) <= set(row["captions"])
        assert captions[: len(given_ones)] == given_ones


def test_the_choice_depends_on_seed_epoch_and_image_alone():
    rows = [make_row(image_id) for image_id in range(20)]
    first = choose(rows)
    np.random.seed(3)
    torch.manual_seed(3)
    assert choose(rows) == first
    assert choose(rows[::-1]) == first[::-1]
    assert [choose([row]) for row in rows] == [[captions] for captions in first]
    assert choose(rows, epoch=1) != first
    assert choose(rows, seed=1) != first


def test_the_choice_is_the_same_in_every_process():
    chosen = choose([make_row(image_id) for image_id in range(4)], epoch=4, seed=2)
    assert chosen == [["0-0"], ["1-3"], ["2-2"], ["3-4"]]


def test_rows_have_fewer_captions_than_asked_or_none():
    chosen = choose([make_row(1, 2), make_row(2, 3)], captions_per_image=None)
    assert chosen == [["1-0", "1-1", None], ["2-0", "2-1", "2-2"]]
    assert choose([make_row(1, None), make_row(2, 1)]) == [[None], ["2-0"]]
    assert choose([make_row(captions=None), make_row(captions=0)]) is None


def test_weights_follow_their_captions():
    rows = [make_row(1, 4) | {"caption_weights": [0.0, 1.0, 2.0, 3.0]}, make_row(2, 1) | {"caption_weights": [7.0]}]
    batch = CaptionCollator(echo, captions_per_image=2)(rows)
    assert batch["caption_weights"].tolist() == [*(float(text[-1]) for text in batch["captions"][0]), 7.0, 0.0]


def test_rows_that_do_not_go_together_are_named():
    collator = CaptionCollator(echo)
    assert collator([]) == {}
    for other in (make_row(7, boxes=False), {"image_id": 7, "captions": ["a"]}):
        with fails_naming("image_id 7"):
            collator([make_row(1), other])


@pytest.fixture(scope="module")
def scenes():
    return load_data("scenes:size=20", "train")


@pytest.fixture(scope="module")
def processor(scenes):
    return NGSANProcessor(tokenizer=build_tokenizer(list(chain.from_iterable(scenes["captions"])), min_count=1))


def tiny_model(processor):
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    config = NGSANConfig(vocab_size=len(processor.tokenizer), visual_feature_size=10, dropout=0, **sizes)
    config.pad_token_id, config.bos_token_id, config.eos_token_id = 0, 1, 2
    config.decoder_start_token_id = 1
    return NGSANForConditionalGeneration(config).eval()


def test_a_batch_of_scenes_for_a_captioner(scenes, processor):
    rows, tokenizer = scenes.__getitems__([0, 1, 2]), processor.tokenizer
    batch = CaptionCollator(processor, captions_per_image=2)(rows)
    regions = [len(row["visual_features"]) for row in rows]
    assert batch["visual_features"].shape == (3, max(regions), 10)
    assert batch["visual_boxes"].shape == (3, max(regions), 4)
    assert batch["attention_mask"].sum(dim=1).tolist() == regions
    assert batch["labels"].shape[0] == 6 and tokenizer.bos_token_id not in batch["labels"]
    for index, labels in enumerate(batch["labels"]):
        text = labels[labels != -100]
        assert text[-1] == tokenizer.eos_token_id
        assert tokenizer.decode(text, skip_special_tokens=True) in rows[index // 2]["captions"]
    short = CaptionCollator(processor, captions_per_image=2, max_caption_length=3)(rows)
    torch.testing.assert_close(short["labels"], batch["labels"][:, :3])


def test_with_a_model_a_batch_has_the_words_that_its_decoder_is_given(scenes, processor):
    model = tiny_model(processor)
    settings = {"captions_per_image": 2, "max_caption_length": 7}
    rows = scenes.__getitems__([0, 1, 2])
    plain, batch = (CaptionCollator(processor, model=decoder, **settings)(rows) for decoder in (None, model))
    words = batch.pop("decoder_input_ids")
    assert list(batch) == list(plain) and all(torch.equal(batch[name], plain[name]) for name in plain)
    assert words.shape == plain["labels"].shape == (6, 7)
    for shifted, labels in zip(words.tolist(), plain["labels"].tolist(), strict=True):
        assert shifted == [1, *(0 if label == -100 else label for label in labels[:-1])]
    with torch.no_grad():
        outside, inside = model(**(batch | {"labels": None}), decoder_input_ids=words), model(**plain)
    torch.testing.assert_close(outside.logits, inside.logits)
    assert "decoder_input_ids" not in CaptionCollator(processor, model=model)([row | {"captions": []} for row in rows])
