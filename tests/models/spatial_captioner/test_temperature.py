"""The whole captioner, and eq. 2 of Springenberg et al. 2018 in particular, against loops: uncached, cached, padded."""

import pytest
import torch

from tests.models import loops
from tests.models.spatial_captioner.tiny import random_cells, tiny_captioner
from tests.models.tiny import one_image
from tests.tables import each_row

CELLS = [6, 3, 4]
CLOSE = {"rtol": 1e-4, "atol": 1e-4}
SMALL = {"hidden_size": 8, "num_attention_heads": 2, "intermediate_size": 10, "decoder_layers": 2}
WORDS = torch.tensor([[1, 5, 6, 7, 9], [1, 8, 5, 11, 12], [1, 10, 4, 9, 6]])
every_implementation = each_row("implementation", ["eager", "sdpa"])


@pytest.fixture(params=["eager", "sdpa"])
def model(request):
    return tiny_captioner(attn_implementation=request.param, **SMALL)


@pytest.fixture
def cells():
    return random_cells(CELLS)


def by_loops(model, cells, words=WORDS) -> torch.Tensor:
    """Logits `(batch_size, length, vocab_size)`, image by image."""
    pairs = zip(words.tolist(), cells["visual_features"], cells["attention_mask"], strict=True)
    return torch.stack([loops.caption(model, row, features[mask.bool()])[0] for row, features, mask in pairs])


@every_implementation
@each_row(
    "fields",
    [
        {},
        {"attention_temperature": "head_dim"},
        {"attention_bias": True, "hidden_size": 12, "num_attention_heads": 3},
        {"encoder_layers": 1, "decoder_layers": 1, "num_attention_heads": 1},
    ],
)
@torch.no_grad()
def test_the_captioner_is_its_equations(fields, implementation, cells):
    model = tiny_captioner(attn_implementation=implementation, **{**SMALL, **fields})
    assert (model.model.encoder.input_proj is None) == (model.config.hidden_size == 12)
    computed = model(**cells, decoder_input_ids=WORDS).logits
    torch.testing.assert_close(computed, by_loops(model, cells), **CLOSE)


@torch.no_grad()
@each_row("steps", [[1] * 5, [2, 3], [3, 1, 1]])
def test_a_cache_changes_no_temperature(steps, model, cells):
    cache, logits, start = None, [], 0
    for step in steps:
        outputs = model(**cells, decoder_input_ids=WORDS[:, start : start + step], cache=cache, use_cache=True)
        cache, start = outputs.cache, start + step
        logits.append(outputs.logits)
    torch.testing.assert_close(torch.cat(logits, dim=1), by_loops(model, cells), **CLOSE)


@torch.no_grad()
@each_row("cached", [False, True])
@each_row("padding", [[2, 0, 1], [1, 1, 1]])
def test_padding_of_words_on_the_left_changes_no_temperature(padding, cached, model, cells):
    width = WORDS.shape[1] + max(padding)
    words = torch.zeros(3, width, dtype=torch.long)
    mask = torch.zeros_like(words)
    for row, number in enumerate(padding):
        words[row, number : number + 5], mask[row, number:] = WORDS[row], 1
    cache, logits = None, []
    for start, end in [(at, at + 1) for at in range(width)] if cached else [(0, width)]:
        outputs = model(
            **cells,
            decoder_input_ids=words[:, start:end],
            decoder_attention_mask=mask[:, :end],
            cache=cache,
            use_cache=cached,
        )
        cache = outputs.cache
        logits.append(outputs.logits)
    logits = torch.cat(logits, dim=1)
    logits = torch.stack([row[number : number + 5] for row, number in zip(logits, padding, strict=True)])
    torch.testing.assert_close(logits, by_loops(model, cells), **CLOSE)


@torch.no_grad()
@each_row("order", [slice(None), slice(None, None, -1)])
def test_padding_of_cells_changes_neither_temperature_nor_position(order, model, cells):
    wider = {name: torch.cat([tensor, torch.zeros_like(tensor)][order], dim=1) for name, tensor in cells.items()}
    wider["visual_features"][wider["attention_mask"] == 0] = 1000.0
    logits = model(**wider, decoder_input_ids=WORDS).logits
    torch.testing.assert_close(logits, by_loops(model, cells), **CLOSE)


def log_probability(model, caption: list[int], image: dict[str, torch.Tensor]) -> float:
    logits, _ = loops.caption(model, caption[:-1], image["visual_features"][0])
    log_probs = logits.log_softmax(-1)
    return sum(log_probs[position, word].item() for position, word in enumerate(caption[1:]))


@each_row("cache", [{}, {"use_cache": False}, {"cache_implementation": "static"}])
@each_row("num_beams", [1, 3])
def test_beams_have_the_probabilities_of_the_loops(num_beams, cache, model, cells):
    options = {"max_new_tokens": 5, "return_dict_in_generate": True, **cache}
    if num_beams > 1:
        options |= {"output_scores": True, "num_return_sequences": num_beams, "length_penalty": 0.0}
    else:
        options |= {"output_logits": True}
    output = model.generate(**cells, num_beams=num_beams, **options)
    for row, sequence in enumerate(output.sequences.tolist()):
        words = [word for word in sequence if word != 0]
        words = words[: words.index(2) + 1] if 2 in words else words
        image = one_image(cells, row // num_beams)
        if num_beams > 1:
            assert output.sequences_scores[row].item() == pytest.approx(log_probability(model, words, image), abs=1e-3)
        else:
            logits, _ = loops.caption(model, words[:-1], image["visual_features"][0])
            assert logits.argmax(-1).tolist() == words[1:]
            generated = torch.stack([step[row] for step in output.logits[: len(words) - 1]])
            torch.testing.assert_close(generated, logits, **CLOSE)
