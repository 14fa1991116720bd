"""The language model: its equations, its cache, its vocabulary and its errors."""

import torch
from transformers import AutoModel, BertConfig, BertModel

from hf_ngsan.models.configuration_rstnet import RSTNetLanguageModelConfig
from hf_ngsan.models.modeling_rstnet_language_model import RSTNetLanguageModel
from tests.models.loops import attend, normalize, sinusoid
from tests.models.rstnet.test_paper import fed
from tests.models.rstnet.tiny import SIZES, TEXT_ENCODER, VOCAB_SIZE, random_grids, tiny_captioner, tiny_language_model
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
@each_row("fields", [TEXT_ENCODER, ROBERTA])
def test_the_signal_is_eq_8_of_a_causal_text_encoder(implementation, fields):
    """The signal of a word depends only on earlier words: BERT runs on every prefix, and its last state is kept."""
    model, words = tiny_language_model(text_encoder_config=fields, attn_implementation=implementation), WORDS + 1
    encoder = AutoModel.from_config(model.config.text_encoder_config).eval()
    assert encoder.config.is_decoder
    encoder.load_state_dict(model.text_encoder.state_dict(), strict=False)
    signal, layer = model(words).last_hidden_state, model.layer
    for row in range(len(words)):
        inputs = []
        for t in range(words.shape[1]):
            prefix = words[row : row + 1, : t + 1]
            inputs.append(model.projection(encoder(prefix).last_hidden_state[0, -1]) + sinusoid(t, 32))
            hidden = normalize(layer.self_attn_norm.norm, inputs[t] + attend(layer.self_attn, inputs[t], inputs)[0])
            torch.testing.assert_close(signal[row, t], fed(layer.feed_forward, hidden), **CLOSE)


@torch.no_grad()
@each_row("encoder", [TEXT_ENCODER, ROBERTA, ELECTRA])
def test_a_cache_and_padding_change_nothing(encoder):
    model = tiny_language_model(text_encoder_config=encoder)
    expected = model(WORDS)
    torch.testing.assert_close(stepwise(model, WORDS), expected.last_hidden_state, **CLOSE)
    for padding in ((0, 2), (2, 0)):
        words, mask = (torch.nn.functional.pad(of, padding) for of in (WORDS, torch.ones_like(WORDS)))
        logits = model(words, attention_mask=mask).logits[:, padding[0] : padding[0] + 6]
        torch.testing.assert_close(logits, expected.logits, **CLOSE)


@torch.no_grad()
def test_a_word_is_the_mean_of_its_pieces_also_after_loading(tmp_path):
    model = tiny_language_model()
    pieces = {word: [word % 40, (3 * word + 1) % 40][: 1 + word % 2] for word in range(VOCAB_SIZE)}
    model.align_vocabulary([str(word) for word in range(VOCAB_SIZE)], lambda word: pieces[int(word)])
    table = model.get_input_embeddings().weight
    expected = torch.stack([torch.stack([table[pieces[int(word)]].mean(0) for word in row]) for row in WORDS])
    torch.testing.assert_close(model.word_embeddings(WORDS)["inputs_embeds"], expected, **CLOSE)
    model.save_pretrained(tmp_path)
    loaded = AutoModel.from_pretrained(tmp_path)
    assert type(loaded) is RSTNetLanguageModel and loaded.config.max_word_pieces == 2
    assert torch.equal(loaded(WORDS).logits, model(WORDS).logits)


@torch.no_grad()
def test_labels_alone_are_read_behind_the_start():
    model, labels = tiny_language_model(), torch.tensor([[5, 6, 7, 2], [8, 2, -100, -100]])
    expected = model(torch.tensor([[1, 5, 6, 7], [1, 8, 2, 0]]), labels=labels)
    actual = model(labels=labels)
    torch.testing.assert_close(actual.loss, expected.loss)
    words = [model(torch.tensor([row])).logits[0].log_softmax(-1) for row in ([1, 5, 6, 7], [1, 8])]
    picked = [words[row][place, token] for row, place in (labels >= 0).nonzero() for token in [labels[row, place]]]
    torch.testing.assert_close(actual.loss, -torch.stack(picked).mean(), **CLOSE)


@torch.no_grad()
def test_a_larger_vocabulary_keeps_the_words_before():
    captioner, grids = tiny_captioner(), random_grids(3)
    captioner.model.decoder.language_model.align_vocabulary(["word"] * VOCAB_SIZE, lambda word: [7, 8])
    before = captioner(**grids, decoder_input_ids=WORDS[:1].expand(3, -1)).logits
    captioner.resize_token_embeddings(VOCAB_SIZE + 5)
    after = captioner(**grids, decoder_input_ids=WORDS[:1].expand(3, -1)).logits
    assert after.shape[-1] == VOCAB_SIZE + 5 == captioner.model.decoder.language_model.lm_head.out_features
    torch.testing.assert_close(after[..., :VOCAB_SIZE], before, **CLOSE)


def test_weights_of_a_trained_text_encoder_are_loaded(tmp_path):
    encoder = BertModel(BertConfig.from_dict(TEXT_ENCODER))
    encoder.save_pretrained(tmp_path)
    model = RSTNetLanguageModel(RSTNetLanguageModelConfig(**SIZES, pretrained_text_encoder=str(tmp_path)))
    for name, weight in model.text_encoder.state_dict().items():
        assert torch.equal(weight, encoder.state_dict()[name])
