"""The equations, the size of the model and its one matrix of embeddings; see `tests/models/test_contracts.py`."""

import json
import math

import pytest
import torch

from hf_ngsan import save_for_hub
from hf_ngsan.models.configuration_nsa_transformer import NSATransformerConfig
from hf_ngsan.models.modeling_nsa_transformer import NSATransformerForConditionalGeneration
from tests.loading.test_hub import result_of
from tests.models.loops import attend, decode, embed, feed, linear, normalize
from tests.models.nsa_transformer.tiny import tiny_translator
from tests.models.tiny import tiny_tokenizer
from tests.tables import each_row


def instance_normalized(vectors: list[torch.Tensor]) -> list[torch.Tensor]:
    """Eq. 6 of Guo et al. 2020: each channel over the positions of one text."""
    channels = []
    for values in torch.stack(vectors).T:
        variance = sum((value - values.mean()) ** 2 for value in values) / len(values)
        channels.append([(value - values.mean()) / math.sqrt(variance + 1e-5) for value in values])
    return [torch.stack([channel[place] for channel in channels]) for place in range(len(vectors))]


@torch.no_grad()
def logits_by_loops(model, source: list[int], target: list[int]) -> torch.Tensor:
    """Eq. 7 of Guo et al. 2020 in the encoder: softmax(IN(Q) K^T / sqrt(head_dim)) V; the decoder is Vaswani's."""
    states = embed(model.model.decoder, source)
    for layer in model.model.encoder.layers:
        queries = [linear(layer.self_attn.q_proj, state) for state in states]
        if model.config.query_norm == "instance":
            queries = instance_normalized(queries)
        attended = [
            attend(layer.self_attn, state, states, projected=query)[0]
            for state, query in zip(states, queries, strict=True)
        ]
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
    """Vaswani et al. give 65 million for a vocabulary of 37,000; normalization adds no parameter."""
    for query_norm in (None, "instance"):
        with torch.device("meta"):
            model = NSATransformerForConditionalGeneration(NSATransformerConfig(query_norm=query_norm))
        assert model.num_parameters() == 37_000 * 512 + 6 * 3_152_384 + 6 * 4_204_032
    assert model.lm_head.weight.shape == (37_000, 512)


def test_source_target_and_output_embeddings_are_one_matrix_after_loading_too(tmp_path):
    tiny_translator().save_pretrained(tmp_path)
    for model in (tiny_translator(), NSATransformerForConditionalGeneration.from_pretrained(tmp_path)):
        encoder, decoder = model.model.encoder, model.model.decoder
        assert encoder.embed_tokens.weight is decoder.embed_tokens.weight is model.lm_head.weight
    model.resize_token_embeddings(33)
    assert encoder.embed_tokens.weight is decoder.embed_tokens.weight is model.lm_head.weight
    assert model.lm_head.weight.shape == (33, 16) and model.config.vocab_size == 33


WITHOUT_THE_PACKAGE = """
import json, sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "hf_ngsan":
            raise ImportError(name)

sys.meta_path.insert(0, Blocked())
from transformers import AutoModel, AutoModelForSeq2SeqLM, AutoTokenizer, pipeline
from transformers.utils import logging
logging.disable_progress_bar()

folder = {folder!r}
model = AutoModelForSeq2SeqLM.from_pretrained(folder, trust_remote_code=True)
tokenizer = AutoTokenizer.from_pretrained(folder, trust_remote_code=True)
ids = model.generate(**tokenizer(["a red ball"], return_tensors="pt"), num_beams=4)
translator = pipeline("translation", model=folder, trust_remote_code=True)
answers = [translator("a red ball", num_beams=4), translator(["a red ball", "two"], batch_size=2, num_beams=4)]
base = type(AutoModel.from_pretrained(folder, trust_remote_code=True)).__name__
print(json.dumps([ids.tolist(), answers, base]))
"""


@pytest.mark.slow
def test_a_checkpoint_with_code_translates_without_the_package(tmp_path):
    model, tokenizer = tiny_translator(), tiny_tokenizer()
    save_for_hub(model, tokenizer, tmp_path / "checkpoint")
    config = json.loads((tmp_path / "checkpoint" / "config.json").read_text())
    assert set(config["auto_map"]) == {"AutoConfig", "AutoModel", "AutoModelForSeq2SeqLM"}
    ids, answers, base = result_of(WITHOUT_THE_PACKAGE.format(folder=str(tmp_path / "checkpoint")), tmp_path)
    expected = model.generate(**tokenizer(["a red ball"], return_tensors="pt"), num_beams=4)
    assert ids == expected.tolist() and base == "NSATransformerModel"
    text = tokenizer.batch_decode(expected, skip_special_tokens=True)[0].strip()
    assert answers[0] == [{"translation_text": text}]
    assert answers[1][0] == answers[0] and len(answers[1]) == 2
