"""The language model: its equations, its cache, its vocabulary and what it refuses."""

import pytest
import torch
from transformers import AutoModel, BertConfig, BertModel, RobertaConfig

from hf_ngsan.models.configuration_rstnet import RSTNetLanguageModelConfig
from hf_ngsan.models.modeling_rstnet_language_model import RSTNetLanguageModel
from tests.models.rstnet.tiny import SIZES, TEXT_ENCODER, VOCAB_SIZE, tiny_language_model
from tests.tables import each_row

WORDS = torch.tensor([[1, 5, 6, 7, 9, 4], [1, 8, 5, 11, 12, 3]])
CLOSE = {"rtol": 1e-5, "atol": 1e-5}
ROBERTA = {**TEXT_ENCODER, "model_type": "roberta", "pad_token_id": 1}
ELECTRA = {**TEXT_ENCODER, "model_type": "electra", "embedding_size": 8}


def stepwise(model, words: torch.Tensor) -> torch.Tensor:
    cache, signals = None, []
    for step in words.split(1, dim=1):
        outputs = model(step, cache=cache, use_cache=True)
        cache = outputs.cache
        signals.append(outputs.last_hidden_state)
    return torch.cat(signals, dim=1)


@torch.no_grad()
@each_row("implementation", ["eager", "sdpa"])
def test_the_signal_is_eq_8_of_a_causal_bert(implementation):
    """Each word's signal is made of the words before it alone: run BERT on every prefix, keep its last state."""
    model = tiny_language_model(attn_implementation=implementation)
    encoder = BertModel(BertConfig.from_dict({**TEXT_ENCODER, "is_decoder": True}), add_pooling_layer=False).eval()
    encoder.load_state_dict(model.text_encoder.state_dict())
    signal = model(WORDS).last_hidden_state
    length = WORDS.shape[1]
    for row in range(len(WORDS)):
        states = torch.stack([encoder(WORDS[row : row + 1, : t + 1]).last_hidden_state[0, -1] for t in range(length)])
        steps = torch.arange(length)[:, None] / 10000 ** (torch.arange(0, 32, 2) / 32)
        inputs = model.projection(states) + torch.cat([steps.sin(), steps.cos()], dim=-1)
        layer = model.layer
        for t in range(length):
            attended = masked_attention(layer.self_attn, inputs[: t + 1])
            hidden = layer.self_attn_norm.norm(inputs[t] + attended)
            fed = layer.feed_forward.feed_forward
            expected = layer.feed_forward.norm(hidden + fed.down(fed.up(hidden).relu()))
            torch.testing.assert_close(signal[row, t], expected, **CLOSE)


def masked_attention(module, states: torch.Tensor) -> torch.Tensor:
    """Multi-head attention of the last state over all of them, head by head."""
    query, key, value = module.q_proj(states[-1]), module.k_proj(states), module.v_proj(states)
    heads = []
    for start in range(0, 32, 8):
        own = slice(start, start + 8)
        weights = torch.softmax(key[:, own] @ query[own] / 8**0.5, dim=0)
        heads.append(weights @ value[:, own])
    return module.out_proj(torch.cat(heads))


@torch.no_grad()
@each_row("encoder", [TEXT_ENCODER, ROBERTA, ELECTRA])
def test_word_by_word_with_a_cache_is_at_once(encoder):
    model = tiny_language_model(text_encoder_config=encoder)
    torch.testing.assert_close(stepwise(model, WORDS), model(WORDS).last_hidden_state, **CLOSE)


@torch.no_grad()
@each_row("encoder", [TEXT_ENCODER, ROBERTA])
def test_no_word_sees_those_after_it_nor_padding(encoder):
    model = tiny_language_model(text_encoder_config=encoder)
    expected = model(WORDS).logits
    for position in range(1, WORDS.shape[1]):
        changed = WORDS.clone()
        changed[:, position] = 2
        logits = model(changed).logits
        torch.testing.assert_close(logits[:, :position], expected[:, :position], **CLOSE)
        assert (logits[:, position:] - expected[:, position:]).abs().max() > 1e-2
    for side in ("left", "right"):
        pad = (2, 0) if side == "left" else (0, 2)
        words, mask = (torch.nn.functional.pad(rows, pad) for rows in (WORDS, torch.ones_like(WORDS)))
        logits = model(words, attention_mask=mask).logits
        torch.testing.assert_close(logits[:, 2:] if side == "left" else logits[:, :-2], expected, **CLOSE)


@torch.no_grad()
def test_released_attention_sees_the_future_and_decodes_one_token_at_position_0():
    model = tiny_language_model(language_attention="bidirectional", language_tokenization="caption_ids")
    changed = WORDS.clone()
    changed[:, -1] = 2
    assert (model(changed).logits[:, 0] - model(WORDS).logits[:, 0]).abs().max() > 1e-3
    states = torch.cat([model.text_encoder(step).last_hidden_state for step in WORDS.split(1, dim=1)], dim=1)
    seen = []
    hook = model.projection.register_forward_hook(lambda module, inputs, output: seen.append(inputs[0]))
    stepwise(model, WORDS)
    hook.remove()
    torch.testing.assert_close(torch.cat(seen, dim=1), states, **CLOSE)


@torch.no_grad()
def test_a_word_is_the_mean_of_its_pieces():
    model = tiny_language_model()
    pieces = {word: [word % 40, (3 * word + 1) % 40][: 1 + word % 2] for word in range(VOCAB_SIZE)}
    model.align_vocabulary([str(word) for word in range(VOCAB_SIZE)], lambda word: pieces[int(word)])
    assert model.config.max_word_pieces == 2
    table = model.get_input_embeddings().weight
    expected = torch.stack([torch.stack([table[pieces[int(word)]].mean(0) for word in row]) for row in WORDS])
    torch.testing.assert_close(model.word_embeddings(WORDS)["inputs_embeds"], expected, **CLOSE)


@torch.no_grad()
def test_pieces_and_everything_else_survive_saving(tmp_path):
    model = tiny_language_model()
    model.align_vocabulary([str(word) for word in range(VOCAB_SIZE)], lambda word: [int(word) % 7, 39])
    model.save_pretrained(tmp_path)
    loaded = AutoModel.from_pretrained(tmp_path)
    assert type(loaded) is RSTNetLanguageModel and loaded.config.max_word_pieces == 2
    assert torch.equal(loaded(WORDS).logits, model(WORDS).logits)


def test_weights_of_a_trained_text_encoder_are_loaded(tmp_path):
    encoder = BertModel(BertConfig.from_dict(TEXT_ENCODER))
    encoder.save_pretrained(tmp_path)
    config = RSTNetLanguageModelConfig(**{**SIZES, "vocab_size": 9, "pretrained_text_encoder": str(tmp_path)})
    assert config.text_encoder_config.hidden_size == 16
    model = RSTNetLanguageModel(config)
    for name, weight in model.text_encoder.state_dict().items():
        assert torch.equal(weight, encoder.state_dict()[name])


def test_a_vocabulary_that_grows_keeps_its_words():
    model = tiny_language_model()
    before = model(WORDS).logits
    model.resize_vocabulary(VOCAB_SIZE + 5)
    after = model(WORDS).logits
    assert after.shape[-1] == model.config.vocab_size == VOCAB_SIZE + 5
    torch.testing.assert_close(after[..., :VOCAB_SIZE], before)
    reads_ids = tiny_language_model(language_tokenization="caption_ids")
    with pytest.raises(ValueError, match="41"):
        reads_ids.resize_vocabulary(41)


def test_captions_longer_than_a_table_of_positions_are_named():
    model = tiny_language_model(position_embedding="table", max_position_embeddings=5)
    with pytest.raises(ValueError, match="max_position_embeddings=5"):
        model(WORDS)


def test_roberta_counts_positions_behind_its_padding():
    model = tiny_language_model(text_encoder_config=ROBERTA)
    encoder = AutoModel.from_config(RobertaConfig.from_dict({**ROBERTA, "is_decoder": True})).eval()
    encoder.load_state_dict(model.text_encoder.state_dict(), strict=False)
    words = WORDS.clamp(min=2)  # not RoBERTa's padding
    with torch.no_grad():
        expected = encoder(words).last_hidden_state
        found = model.encode(words, None, torch.arange(6)[None], None)
    torch.testing.assert_close(found, expected, **CLOSE)
