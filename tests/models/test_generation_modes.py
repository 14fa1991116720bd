"""Ways of `generate()` that transformers' generation tests, which its source distribution leaves out, would try."""

import copy

import pytest
import torch

from tests.models import tiny
from tests.models.rstnet import tiny as rstnet
from tests.models.spatial_captioner import tiny as spatial_captioner

CAPTIONERS = {
    "ngsan": (tiny.tiny_captioner, tiny.random_images([5, 3])),
    "rstnet": (rstnet.tiny_captioner, rstnet.random_grids(2)),
    "spatial_captioner": (spatial_captioner.tiny_captioner, spatial_captioner.random_cells([9, 4])),
}
STEPS = 6
EXACTLY = {"min_new_tokens": STEPS, "max_new_tokens": STEPS}


@pytest.fixture(params=CAPTIONERS)
def captioner(request):
    make, images = CAPTIONERS[request.param]
    model = make()
    model.set_attn_implementation("eager")
    return model, images


def other_words(model):
    """A captioner that agrees with another one now and then."""
    changed, generator = copy.deepcopy(model), torch.Generator().manual_seed(1)
    with torch.no_grad():
        weight = changed.get_output_embeddings().weight
        weight.add_(0.5 * weight.std() * torch.randn(weight.shape, generator=generator))
    return changed


@pytest.mark.deprecated_by_itself("Passing `generation_config` together with")
def test_an_assistant_changes_no_word(captioner):
    model, images = captioner
    one = {name: values[:1] for name, values in images.items()}
    expected = model.generate(**one, **EXACTLY)
    assert torch.equal(model.generate(**one, **EXACTLY, assistant_model=other_words(model)), expected)
    assert torch.equal(model.generate(**one, **EXACTLY, prompt_lookup_num_tokens=2), expected)


@pytest.mark.parametrize(
    ("settings", "rows"),
    [({}, 2), ({"do_sample": True}, 2), ({"num_beams": 3}, 6), ({"num_beams": 3, "do_sample": True}, 6)],
    ids=["greedy", "sample", "beams", "sampled beams"],
)
def test_each_step_has_its_scores_states_and_attention(captioner, settings, rows):
    model, images = captioner
    wanted = dict.fromkeys(["output_scores", "output_logits", "output_hidden_states", "output_attentions"], True)
    torch.manual_seed(0)
    found = model.generate(**images, **EXACTLY, **settings, **wanted, return_dict_in_generate=True)
    config = model.config
    assert found.sequences.shape == (2, 1 + STEPS)
    for scores in (found.scores, found.logits):
        assert [step.shape for step in scores] == [(rows, config.vocab_size)] * STEPS
    for states in found.decoder_hidden_states:
        assert {state.shape for state in states} == {(rows, 1, config.hidden_size)}
    for step, attentions in enumerate(found.decoder_attentions):
        assert {attention.shape for attention in attentions} == {(rows, config.num_attention_heads, 1, 1 + step)}
    regions = images["visual_features"].shape[1]
    signals = 1 if getattr(config, "adaptive_attention", False) else 0  # of the language, beside the regions
    for attentions in found.cross_attentions:
        assert {attention.shape[:3] for attention in attentions} == {(rows, config.num_attention_heads, 1)}
        assert [attention.shape[3] for attention in attentions] == [regions] * (len(attentions) - signals) + [
            regions + signals
        ] * signals
    torch.manual_seed(0)
    assert torch.equal(model.generate(**images, **EXACTLY, **settings), found.sequences)


def test_beams_give_as_many_captions_as_asked_for(captioner):
    model, images = captioner
    found = model.generate(**images, **EXACTLY, num_beams=4, num_return_sequences=3)
    assert found.shape == (6, 1 + STEPS)
    assert torch.equal(found[::3], model.generate(**images, **EXACTLY, num_beams=4))
    for image in found.view(2, 3, -1).tolist():
        assert len({tuple(caption) for caption in image}) == 3
