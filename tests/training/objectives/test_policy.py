"""Sampling captions: the distribution, its independence of the batch, and the returned values."""

import pytest
import torch

from hf_ngsan.training.objectives.policy import (
    Policy,
    beam_search,
    draw_words,
    image_uniforms,
    labels_of,
    sampling_generate,
)
from tests.tables import each_row

from .toy_policy import END, PAD, START, toy_captioner

UNKNOWN, NUM_WORDS, LONGEST = 3, 12, 6


@pytest.fixture(scope="module")
def model():
    model = toy_captioner(vocab_size=NUM_WORDS)
    model.generation_config.suppress_tokens = [UNKNOWN]
    return model


@pytest.fixture(scope="module")
def images():
    torch.manual_seed(1)
    corners = torch.rand(4, 5, 2, 2).sort(dim=2).values.flatten(2)
    mask = torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1], [1, 1, 1, 1, 0], [1, 1, 0, 0, 0]])
    return {"visual_features": torch.rand(4, 5, 3), "visual_boxes": corners, "attention_mask": mask}


def encode(model, images):
    with torch.no_grad():
        return model.get_encoder()(**images).last_hidden_state


def draw(model, images, rows, num_samples=3, **settings):
    policy = Policy.of(model, max_new_tokens=LONGEST, **settings)
    uniforms = image_uniforms([(0, row) for row in rows], num_samples, LONGEST)
    with torch.no_grad():
        states, custom_generate = encode(model, images), sampling_generate(policy, uniforms)
        return beam_search(model, policy, states, images["attention_mask"], custom_generate=custom_generate)


def as_captions(samples):
    """Lists of ids up to and including the end token."""
    rows = samples.tolist()
    return [row[: row.index(END) + 1] if END in row else row for row in rows]


@each_row("settings", [{}, {"temperature": 0.6}, {"top_p": 0.7}, {"temperature": 1.5, "top_p": 0.9}])
def test_words_are_drawn_as_often_as_the_policy_says(settings):
    torch.manual_seed(2)
    logits = 2 * torch.randn(NUM_WORDS)
    policy = Policy(END, PAD, START, suppressed_tokens=(PAD, START, UNKNOWN), **settings)
    number = 20_000
    uniforms = image_uniforms([(5, row) for row in range(number)], 1, 1)
    chosen = draw_words(policy, logits.expand(number, -1), uniforms[:, 0])
    counts = torch.bincount(chosen, minlength=NUM_WORDS)

    possible = [index for index in range(NUM_WORDS) if index not in (PAD, START, UNKNOWN)]
    weights = {index: float((logits[index] / settings.get("temperature", 1.0)).exp()) for index in possible}
    total, nucleus, covered = sum(weights.values()), [], 0.0
    for index in sorted(possible, key=weights.get, reverse=True):
        if covered < settings.get("top_p", 1.0):
            nucleus.append(index)
        covered += weights[index] / total
    mass = sum(weights[index] for index in nucleus)
    for index in range(NUM_WORDS):
        expected = weights[index] / mass if index in nucleus else 0.0
        deviation = (expected * (1 - expected) / number) ** 0.5
        assert abs(counts[index].item() / number - expected) <= 4.5 * deviation


def test_the_largest_number_below_one_draws_a_possible_word_and_a_chosen_one_stays_possible():
    policy = Policy(END, PAD, START, suppressed_tokens=(PAD, START, NUM_WORDS - 1))
    chosen = draw_words(policy, torch.randn(2, NUM_WORDS), torch.tensor([0.0, 1 - 2**-24]))
    assert not set(chosen.tolist()) & {PAD, START, NUM_WORDS - 1}
    policy, logits = Policy(END, PAD, START, top_p=0.5), torch.tensor([[0.0, 0.0, 5.0, 0.0]])
    assert policy.logits(logits)[0, 3] == -torch.inf
    assert policy.logits(logits, chosen=torch.tensor([3]))[0, 3] == 0.0


def test_captions_of_an_image_depend_on_its_own_key_only(model, images):
    together = as_captions(draw(model, images, [0, 1, 2, 3]))
    order = [2, 0, 3, 1]
    shuffled = as_captions(draw(model, {name: tensor[order] for name, tensor in images.items()}, order))
    assert [shuffled[3 * order.index(row) :][:3] for row in range(4)] == [together[3 * row :][:3] for row in range(4)]
    alone = as_captions(draw(model, {name: tensor[:1, :3] for name, tensor in images.items()}, [0]))
    assert alone == together[:3]
    assert as_captions(draw(model, images, [9, 1, 2, 3]))[3:] == together[3:]
    assert len(set(map(tuple, together))) > 6


def test_beams_leave_the_encoder_states_as_they_were(model, images):
    policy, states = Policy.of(model, max_new_tokens=LONGEST), encode(model, images)
    before = states.clone()
    beams = beam_search(model, policy, states, images["attention_mask"], num_beams=3)
    assert len(beams) == 12
    assert states.shape == before.shape
    assert torch.equal(states, before)
    best = model.generate(**images, num_beams=3, max_new_tokens=LONGEST, suppress_tokens=[PAD, START, UNKNOWN])
    assert as_captions(beams[::3]) == as_captions(best[:, 1:])


def test_one_teacher_forced_pass_gives_the_log_probabilities_of_decoding(model, images):
    samples = draw(model, images, range(4), temperature=0.8)
    labels = labels_of(samples, END)
    policy = Policy.of(model, temperature=0.8, max_new_tokens=LONGEST)
    with torch.no_grad():
        start = model.prepare_decoder_input_ids_from_labels(labels)
        logits = model(**images, decoder_input_ids=start, use_cache=False).logits
        forced = policy.logits(logits).log_softmax(-1)
        for row, caption in enumerate(as_captions(samples)):
            image = {name: tensor[row // 3][None] for name, tensor in images.items()}
            cache = None
            for step, word in enumerate(caption):
                last = START if step == 0 else caption[step - 1]
                output = model(**image, decoder_input_ids=torch.tensor([[last]]), cache=cache, use_cache=True)
                cache = output.cache
                cached = policy.logits(output.logits[0, -1]).log_softmax(-1)
                assert forced[row, step, word].item() == pytest.approx(cached[word].item(), abs=1e-5)
