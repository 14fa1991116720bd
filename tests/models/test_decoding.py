"""Diverse and constrained search against exhaustive search and loops, on tiny vocabularies."""

import itertools

import pytest
import torch

from hf_ngsan.models.decoding import constrained_beam_search, diverse_beam_search
from tests.models import tiny
from tests.models.rstnet import tiny as rstnet
from tests.models.spatial_captioner import tiny as spatial_captioner
from tests.models.tiny import one_image, random_images
from tests.tables import each_row

VOCAB_SIZE, LONGEST = 7, 4
PAD, START, END = 0, 1, 2
EVERY_BEAM = (VOCAB_SIZE - 1) ** (LONGEST - 1)
"""The number of captions that have not ended before the last word."""
LENGTHS = [5, 3]
NUMBER = len(LENGTHS)
SEARCHES = {
    "diverse": {"custom_generate": diverse_beam_search, "num_beams": 4, "num_beam_groups": 2},
    "constrained": {"custom_generate": constrained_beam_search, "num_beams": 3, "required_words": [[3]]},
}
CAPTIONERS = {"ngsan": tiny, "rstnet": rstnet, "spatial_captioner": spatial_captioner}


def captioner_and_images(name: str):
    """A captioner of seven tokens, whose captions do not end immediately, and images of which one is padded."""
    model = CAPTIONERS[name].tiny_captioner(vocab_size=VOCAB_SIZE)
    with torch.no_grad():
        model.lm_head.bias[END] -= 2
    return model, random_images(LENGTHS)


@pytest.fixture(
    scope="module", params=["ngsan", *(pytest.param(name, marks=pytest.mark.slow) for name in [*CAPTIONERS][1:])]
)
def asked(request):
    return captioner_and_images(request.param)


@torch.no_grad()
def all_captions(model, inputs, image: int) -> list[tuple[float, list[int]]]:
    """Every caption of an image with its log-probability: captions that end, and those of the maximum length."""
    single = one_image(inputs, image)
    tokens = [token for token in range(VOCAB_SIZE) if token != END]
    actual = {}
    ways = itertools.product(tokens, repeat=LONGEST - 1)
    rows = torch.tensor([[START, *way] for way in ways])
    many = {name: tensor.expand(len(rows), *tensor.shape[1:]) for name, tensor in single.items()}
    log_probs = model(**many, decoder_input_ids=rows).logits.log_softmax(-1)
    for row, steps in zip(rows.tolist(), log_probs.tolist(), strict=True):
        score = 0.0
        for place in range(LONGEST):
            actual[(*row[: place + 1], END)] = score + steps[place][END]
            if place < LONGEST - 1:
                score += steps[place][row[place + 1]]
        for last in tokens:
            actual[(*row, last)] = score + steps[-1][last]
    return sorted(((score, list(ids)) for ids, score in actual.items()), reverse=True)


def without_padding(row: torch.Tensor, ends: tuple[int, ...] = (END,)) -> list[int]:
    ids = row.tolist()
    return ids[: next((place for place, token in enumerate(ids) if token in ends), len(ids)) + 1]


def generate(asked, search, **options) -> list[list[int]]:
    model, inputs = asked
    options = {"max_new_tokens": LONGEST, "length_penalty": 0.0, **options}
    return [without_padding(row) for row in model.generate(**inputs, custom_generate=search, **options)]


@each_row("words", [[], [[5], [5]], [[6], [4]], [[3, 5], [6]]])
def test_constrained_search_finds_the_best_caption_that_has_the_words(asked, words):
    options = {"num_beams": EVERY_BEAM, "num_return_sequences": 3, "early_stopping": "never"}
    actual = generate(asked, constrained_beam_search, **options, required_words=words)
    for image in range(NUMBER):
        captions = all_captions(*asked, image)
        target = [ids for _, ids in captions if all(set(word) & set(ids) for word in words)]
        assert actual[3 * image : 3 * image + 3] == target[:3]


@each_row(
    "options",
    [
        {},
        {"early_stopping": True},
        {"early_stopping": "never", "length_penalty": 2.0},
        {"use_cache": False, "length_penalty": -1.0},
        {"eos_token_id": [2, 5], "num_return_sequences": 4},
    ],
)
def test_without_groups_and_words_it_is_beam_search(asked, options):
    model, inputs = asked
    options = {"num_beams": 4, "max_new_tokens": 6, "return_dict_in_generate": True, "output_scores": True, **options}
    expected = model.generate(**inputs, **options)
    del options["output_scores"]
    ends = tuple(options.get("eos_token_id", [END]))
    for search in (
        {"custom_generate": constrained_beam_search},
        {"custom_generate": diverse_beam_search, "num_beam_groups": 1},
    ):
        actual = model.generate(**inputs, **options, **search)
        assert actual.sequences.shape == expected.sequences.shape
        for row, right in zip(actual.sequences, expected.sequences, strict=True):
            assert without_padding(row, ends) == without_padding(right, ends)
        torch.testing.assert_close(actual.sequences_scores, expected.sequences_scores)


@torch.no_grad()
def diverse_by_loops(model, inputs, image: int, groups: int, penalty: float) -> list[list[int]]:
    """Groups of one beam, which continues with the best word except the end token; the best finished caption counts.

    A group omits the best captions of earlier groups.
    """
    single = one_image(inputs, image)
    captions = [[START] for _ in range(groups)]
    ended: list[dict[tuple[int, ...], float]] = [{} for _ in range(groups)]
    for step in range(LONGEST):
        chosen = []
        for group in range(groups):
            ids = captions[group]
            log_probs = model(**single, decoder_input_ids=torch.tensor([ids])).logits[0, -1].log_softmax(-1).tolist()
            taken = {max(before, key=before.__getitem__) for before in ended[:group] if before}
            values = {
                token: value - penalty * chosen.count(token)
                for token, value in enumerate(log_probs)
                if (*ids, token) not in taken
            }
            best = max(values, key=values.__getitem__)
            if best == END or step == LONGEST - 1:
                ended[group][*ids, best] = sequence_score(model, single, [*ids, best])
            captions[group] = [*ids, max(set(values) - {END}, key=values.__getitem__)]
            if step < LONGEST - 1:
                chosen.append(captions[group][-1])
    return [list(max(scores, key=scores.__getitem__)) for scores in ended]


def sequence_score(model, single, ids: list[int]) -> float:
    log_probs = model(**single, decoder_input_ids=torch.tensor([ids[:-1]])).logits[0].log_softmax(-1)
    return float(log_probs.gather(-1, torch.tensor(ids[1:])[:, None]).sum())


@each_row("penalty", [0.0, 1.0, 20.0])
def test_groups_avoid_each_others_words(asked, penalty):
    groups = 3
    options = {"num_beams": groups, "num_beam_groups": groups, "num_return_sequences": groups}
    options |= {"diversity_penalty": penalty, "early_stopping": "never"}
    actual = generate(asked, diverse_beam_search, **options)
    for image in range(NUMBER):
        captions = actual[groups * image : groups * (image + 1)]
        assert captions == diverse_by_loops(*asked, image, groups, penalty)
        assert len(set(map(tuple, captions))) == groups
    if penalty == 20.0:
        actual = generate(asked, diverse_beam_search, min_new_tokens=LONGEST, **options)
        assert all(len({tuple(ids[:2]) for ids in actual[start : start + groups]}) == groups for start in (0, groups))


@each_row("search", SEARCHES)
def test_no_caption_depends_on_the_cache_or_on_other_images(asked, search):
    """Nor on padding: of visual tokens, and of prefixes of unequal length, which processors pad on the left."""
    model, inputs = asked
    prefixes = {
        "decoder_input_ids": torch.tensor([[PAD, START, 5], [START, 4, 6]]),
        "decoder_attention_mask": torch.tensor([[0, 1, 1], [1, 1, 1]]),
    }
    options = {**SEARCHES[search], "max_new_tokens": 5}
    for begun in ({}, prefixes):
        together = model.generate(**inputs, **begun, **options)
        assert torch.equal(model.generate(**inputs, **begun, **options, use_cache=False), together)
        for image in range(NUMBER):
            part = {name: prefix[image : image + 1] for name, prefix in begun.items()}
            if begun:
                words = part["decoder_attention_mask"][0].bool()
                part = {name: prefix[:, words] for name, prefix in part.items()}
            alone = model.generate(**one_image(inputs, image), **part, **options)[0]
            padding = int((together[image] == PAD).cumprod(0).sum())
            assert without_padding(together[image][padding:]) == without_padding(alone)
