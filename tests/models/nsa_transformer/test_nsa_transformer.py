"""The equations, the size of the model, its shared matrix of embeddings and its pipeline.

`tests/models/test_contracts.py` tests properties of every model that generates text.
"""

import pytest
import torch

from hf_ngsan import TranslationPipeline
from hf_ngsan.models.configuration_nsa_transformer import NSATransformerConfig
from hf_ngsan.models.modeling_nsa_transformer import NSATransformerForConditionalGeneration
from tests.models.loops import attend, decode, embed, feed, linear, normalize
from tests.models.nsa_transformer.tiny import tiny_translator
from tests.models.test_attention import instance_norm_by_loops
from tests.models.tiny import tiny_tokenizer
from tests.tables import each_row


@torch.no_grad()
def logits_by_loops(model, source: list[int], target: list[int]) -> torch.Tensor:
    """Eq. 7 of Guo et al. 2020 in the encoder: softmax(IN(Q) K^T / sqrt(head_dim)) V; the decoder is Vaswani's."""
    states = embed(model.model.decoder, source)
    for layer in model.model.encoder.layers:
        queries = torch.stack([linear(layer.self_attn.q_proj, state) for state in states])
        if model.config.query_norm == "instance":
            queries = instance_norm_by_loops(queries[None], torch.ones(1, len(source)))[0]
        attended = [attend(layer.self_attn, states[0], states, projected=query)[0] for query in queries]
        states = [
            feed(layer, normalize(layer.self_attn_norm, state + more))
            for state, more in zip(states, attended, strict=True)
        ]
    decoded, _ = decode(model.model.decoder, target, states)
    return torch.stack([model.lm_head.weight @ state for state in decoded])


@each_row("query_norm", [None, "instance"])
def test_logits_are_those_of_the_equations(query_norm):
    model = tiny_translator(query_norm=query_norm)
    source, target = [5, 9, 4, 17, 2], [1, 7, 23]
    with torch.no_grad():
        computed = model(input_ids=torch.tensor([source]), decoder_input_ids=torch.tensor([target])).logits[0]
    torch.testing.assert_close(computed, logits_by_loops(model, source, target), rtol=1e-4, atol=1e-4)


def test_transformer_base_has_its_size():
    """Vaswani et al. state 65 million for a vocabulary of 37,000; normalization adds no parameters."""
    for query_norm in (None, "instance"):
        with torch.device("meta"):
            model = NSATransformerForConditionalGeneration(NSATransformerConfig(query_norm=query_norm))
        assert model.num_parameters() == 37_000 * 512 + 6 * 3_152_384 + 6 * 4_204_032


def test_source_target_and_output_embeddings_are_one_matrix_after_loading_too(tmp_path):
    tiny_translator().save_pretrained(tmp_path)
    for model in (tiny_translator(), NSATransformerForConditionalGeneration.from_pretrained(tmp_path)):
        encoder, decoder = model.model.encoder, model.model.decoder
        assert encoder.embed_tokens.weight is decoder.embed_tokens.weight is model.lm_head.weight
    model.resize_token_embeddings(33)
    assert encoder.embed_tokens.weight is decoder.embed_tokens.weight is model.lm_head.weight
    assert model.lm_head.weight.shape == (33, 16) and model.config.vocab_size == 33


def test_the_pipeline_translates_one_text_or_several():
    model, tokenizer = tiny_translator(), tiny_tokenizer()
    translator = TranslationPipeline(model=model, tokenizer=tokenizer)
    texts = ["a red ball", "two boxes near the ring", "a ring"]
    apart = [translator(text, num_beams=2) for text in texts]
    assert translator(texts, batch_size=2, num_beams=2) == apart
    assert list(translator((text for text in texts), num_beams=2)) == apart
    ids = model.generate(**tokenizer(texts[0], return_tensors="pt"), num_beams=2)
    assert apart[0] == [{"translation_text": tokenizer.decode(ids[0], skip_special_tokens=True).strip()}]
    assert len(translator(texts[0], num_beams=3, num_return_sequences=3)) == 3
    for wrong in ("", " ", 3, None):
        with pytest.raises(ValueError, match="text"):
            translator(wrong)
