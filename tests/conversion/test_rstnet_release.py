"""The captioner with all settings of the release, against outputs of the authors' implementation."""

import convert_rstnet as script
import pytest
import torch
from safetensors.torch import load_file

from hf_ngsan.models.geometry import center_and_size, geometry_of_pairs, grid_boxes
from hf_ngsan.models.modeling_rstnet_release import grid_positions, sinusoidal_geometry
from tests.golden import golden_folder
from tests.tables import each_row

CLOSE = {"rtol": 1e-5, "atol": 1e-5}


@pytest.fixture(scope="module")
def golden():
    return load_file(golden_folder("rstnet") / "io.safetensors")


@pytest.fixture(scope="module")
def model():
    folder = golden_folder("rstnet")
    words = script.load_words(folder / "vocab.pkl")
    captioner, _, _ = script.convert_captioner(script.load_state_dict(folder / "rstnet_last.pth"), words)
    captioner.set_attn_implementation("eager")
    return captioner


@pytest.fixture(scope="module")
def grids(golden):
    features = golden["inputs.grid_features"]
    return {"visual_features": features, "attention_mask": (features.abs().sum(-1) > 0).long()}


@pytest.fixture(scope="module")
def captions(golden):
    words = golden["inputs.caption_ids"]
    return {"decoder_input_ids": words, "decoder_attention_mask": (words != 1).long()}


@torch.no_grad()
def test_geometry(golden, model):
    center, size = center_and_size(grid_boxes(7, 7)[None])
    embedding = sinusoidal_geometry(geometry_of_pairs(center, size + 1.0), 64)
    torch.testing.assert_close(embedding[0], golden["encoder.geometry_embedding"], **CLOSE)
    weights = model.model.encoder.geometry.weights(embedding, embedding)
    torch.testing.assert_close(weights[0], golden["encoder.geometry_weights"], **CLOSE)
    torch.testing.assert_close(grid_positions(7, 7, 32), golden["grid_position"], **CLOSE)


@torch.no_grad()
def test_teacher_forcing(golden, model, grids, captions):
    output = model(**grids, **captions, output_hidden_states=True, output_attentions=True)
    torch.testing.assert_close(output.logits.log_softmax(-1), golden["decoder.log_probs"], **CLOSE)
    torch.testing.assert_close(output.encoder_hidden_states[0], golden["encoder.input"], **CLOSE)
    torch.testing.assert_close(output.encoder_attentions[0], golden["encoder.attention.0"], **CLOSE)
    for layer in range(2):
        expected = golden[f"encoder.layer_output.{layer}"]
        torch.testing.assert_close(output.encoder_hidden_states[layer + 1], expected, **CLOSE)
    for layer in range(3):
        expected = golden[f"decoder.layer_output.{layer}"]
        torch.testing.assert_close(output.decoder_hidden_states[layer + 1], expected, **CLOSE)
    torch.testing.assert_close(output.cross_attentions[-1], golden["decoder.adaptive_attention"], **CLOSE)


@torch.no_grad()
def test_language_model_of_the_captioner(golden, model, captions):
    language_model = model.model.decoder.language_model
    words = captions["decoder_input_ids"]
    output = language_model(words, attention_mask=captions["decoder_attention_mask"])
    torch.testing.assert_close(output.last_hidden_state, golden["lm_in_model.features"], **CLOSE)
    torch.testing.assert_close(output.logits.log_softmax(-1), golden["lm_in_model.log_probs"], **CLOSE)
    states = language_model.text_encoder(words).last_hidden_state
    torch.testing.assert_close(states, golden["lm_in_model.bert_hidden"], **CLOSE)


@torch.no_grad()
def test_step_by_step(golden, model, grids, captions):
    words, mask, cache = captions["decoder_input_ids"], captions["decoder_attention_mask"], None
    logits, weights = [], []
    for end in range(1, words.shape[1] + 1):
        begun = {"decoder_input_ids": words[:, end - 1 : end], "decoder_attention_mask": mask[:, :end]}
        output = model(**grids, **begun, cache=cache, use_cache=True, output_attentions=True)
        cache = output.cache
        logits.append(output.logits)
        weights.append(output.cross_attentions[-1])
    torch.testing.assert_close(torch.cat(logits, dim=1).log_softmax(-1), golden["stepwise.log_probs"], **CLOSE)
    torch.testing.assert_close(torch.cat(weights, dim=2), golden["stepwise.adaptive_attention"], **CLOSE)


def without_end(sequence: list[int]) -> list[int]:
    return sequence[: sequence.index(3) + 1] if 3 in sequence else sequence


@each_row(("name", "beams", "steps"), [("beam5", 5, 20), ("beam3_len6", 3, 6), ("beam1", 1, 20)])
def test_beams(name, beams, steps, golden, model, grids):
    options = {"num_beams": beams, "num_return_sequences": beams, "max_new_tokens": steps}
    output = model.generate(**grids, **options, return_dict_in_generate=True, output_scores=True)
    expected = golden[f"{name}.sequences"].reshape(-1, steps).tolist()
    actual = output.sequences[:, 1:].tolist()
    assert [without_end(row) for row in actual] == [without_end(row) for row in expected]
    if beams > 1:
        torch.testing.assert_close(output.sequences_scores, golden[f"{name}.scores"].flatten(), **CLOSE)


def test_greedy_captions_and_their_visualness(golden, model, grids):
    options = {"return_visualness": True, "return_dict_in_generate": True}
    output = model.generate(**grids, num_beams=1, max_new_tokens=20, **options)
    expected = golden["greedy.sequences"].tolist()
    assert [without_end(row) for row in output.sequences[:, 1:].tolist()] == [without_end(row) for row in expected]
    language_weight = golden["greedy.adaptive_attention"][..., -1].mean(1)
    for row, words in enumerate(map(without_end, expected)):
        actual = output.visualness[row, 1 : len(words) + 1]
        torch.testing.assert_close(actual, 1 - language_weight[row, : len(words)], **CLOSE)
