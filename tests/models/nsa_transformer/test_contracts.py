"""The equations, and what must not change a result: padding, batch, attention implementation, caches, saving."""

import json

import pytest
import torch
from transformers import AutoModel, AutoModelForSeq2SeqLM

from hf_ngsan import save_for_hub
from hf_ngsan.models.configuration_nsa_transformer import NSATransformerConfig
from hf_ngsan.models.modeling_nsa_transformer import NSATransformerForConditionalGeneration, NSATransformerModel
from tests.loading.test_hub import result_of
from tests.models.nsa_transformer.loops import logits as logits_by_loops
from tests.models.nsa_transformer.tiny import SIZES, VARIANTS, random_sources, tiny_translator
from tests.models.tiny import tiny_tokenizer

LENGTHS = [6, 2, 5, 3]
LABELS = torch.tensor([[5, 6, 7, 2], [8, 9, 2, -100], [10, 2, -100, -100], [11, 12, 13, 2]])
CLOSE = {"rtol": 1e-5, "atol": 1e-5}
METHODS = {"greedy": {}, "beams": {"num_beams": 4, "length_penalty": 0.6}}
every_variant = pytest.mark.parametrize("name", VARIANTS)


def logits_of(model, sources: dict[str, torch.Tensor], labels: torch.Tensor = LABELS) -> torch.Tensor:
    with torch.no_grad():
        return model(**sources, labels=labels).logits


def one_source(sources: dict[str, torch.Tensor], row: int) -> dict[str, torch.Tensor]:
    length = int(sources["attention_mask"][row].sum())
    return {name: tensor[row : row + 1, :length] for name, tensor in sources.items()}


def words(sequences: torch.Tensor) -> list[list[int]]:
    """Each translation up to its end token."""
    return [row[: row.index(2)] if 2 in row else row for row in (row.tolist() for row in sequences)]


@pytest.mark.parametrize("query_norm", [None, "instance"])
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


@every_variant
def test_padding_on_either_side_and_the_batch_change_nothing(name):
    model, sources = tiny_translator(**VARIANTS[name]), random_sources(LENGTHS)
    together = logits_of(model, sources)
    sources["input_ids"][sources["attention_mask"] == 0] = 11
    left = {
        key: torch.stack([tensor[row].roll(6 - length) for row, length in enumerate(LENGTHS)])
        for key, tensor in sources.items()
    }
    torch.testing.assert_close(logits_of(model, sources), together, **CLOSE)
    torch.testing.assert_close(logits_of(model, left), together, **CLOSE)
    for row in range(len(LENGTHS)):
        alone = logits_of(model, one_source(sources, row), LABELS[row : row + 1])
        torch.testing.assert_close(together[row : row + 1], alone, **CLOSE)


@every_variant
def test_eager_equals_sdpa(name):
    results = []
    for implementation in ("eager", "sdpa"):
        model, sources = tiny_translator(attn_implementation=implementation, **VARIANTS[name]), random_sources(LENGTHS)
        loss = model(**sources, labels=LABELS).loss
        loss.backward()
        gradients = torch.cat([parameter.grad.flatten() for parameter in model.parameters()])
        results.append((logits_of(model, sources), loss.detach(), gradients))
    torch.testing.assert_close(results[0], results[1], **CLOSE)


def test_source_target_and_output_embeddings_are_one_matrix_after_loading_too(tmp_path):
    tiny_translator().save_pretrained(tmp_path)
    for model in (tiny_translator(), NSATransformerForConditionalGeneration.from_pretrained(tmp_path)):
        encoder, decoder = model.model.encoder, model.model.decoder
        assert encoder.embed_tokens.weight is decoder.embed_tokens.weight is model.lm_head.weight
    model.resize_token_embeddings(33)
    assert encoder.embed_tokens.weight is decoder.embed_tokens.weight is model.lm_head.weight
    assert model.lm_head.weight.shape == (33, 16) and model.config.vocab_size == 33


def test_no_token_sees_those_after_it():
    model, sources = tiny_translator(), random_sources([5])
    tokens = torch.tensor([[1, 5, 6, 7]])
    with torch.no_grad():
        before = model(**sources, decoder_input_ids=tokens).logits
        tokens[0, 3] = 20
        after = model(**sources, decoder_input_ids=tokens).logits
    assert torch.equal(before[:, :3], after[:, :3]) and not torch.equal(before[:, 3], after[:, 3])


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("cache", [{"use_cache": False}, {"cache_implementation": "static"}], ids=str)
def test_caches_change_no_translation(cache, method):
    model, sources = tiny_translator(), random_sources(LENGTHS)
    options = {**METHODS[method], "output_logits": True, "return_dict_in_generate": True}
    dynamic, other = model.generate(**sources, **options), model.generate(**sources, **options, **cache)
    assert words(dynamic.sequences) == words(other.sequences)
    torch.testing.assert_close(dynamic.logits, other.logits, **CLOSE)


@pytest.mark.parametrize("method", METHODS)
def test_a_batch_is_translated_as_its_texts_alone_are(method):
    model, sources = tiny_translator(), random_sources(LENGTHS)
    together = words(model.generate(**sources, **METHODS[method]))
    apart = [words(model.generate(**one_source(sources, row), **METHODS[method]))[0] for row in range(len(LENGTHS))]
    assert together == apart and len({tuple(one) for one in together}) > 1


def test_length_of_translations_where_nothing_or_something_is_said():
    model = NSATransformerForConditionalGeneration(NSATransformerConfig(**SIZES)).eval()
    sources, endless = random_sources([3]), {"suppress_tokens": [2]}
    assert model.generate(**sources, **endless).shape[1] == 1 + model.longest_output
    assert model.generate(**sources, **endless, max_new_tokens=4).shape[1] == 1 + 4
    assert model.generate(**sources, **endless, max_length=4).shape[1] == 4


def test_gradient_checkpointing_changes_no_gradient():
    gradients = []
    for checkpointing in (False, True):
        model = tiny_translator(dropout=0.0).train()
        if checkpointing:
            model.activation_checkpointing_enable({"use_reentrant": False})
        model(**random_sources(LENGTHS), labels=LABELS).loss.backward()
        gradients.append([parameter.grad for parameter in model.parameters()])
    torch.testing.assert_close(*gradients, **CLOSE)


def test_half_precision_and_mixed_precision():
    sources = random_sources(LENGTHS)
    single, half = logits_of(tiny_translator(), sources), logits_of(tiny_translator().to(torch.bfloat16), sources)
    torch.testing.assert_close(half.float(), single, rtol=0.1, atol=0.3)
    model = tiny_translator().train()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(**sources, labels=LABELS).loss
    loss.backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())


def test_saving_and_loading_changes_no_bit(tmp_path):
    model, sources = tiny_translator(), random_sources(LENGTHS)
    model.save_pretrained(tmp_path)
    loaded = AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    assert type(loaded) is NSATransformerForConditionalGeneration and not loaded.training
    assert torch.equal(logits_of(loaded, sources), logits_of(model, sources))
    assert loaded.generation_config.max_new_tokens == 8
    base = AutoModel.from_pretrained(tmp_path)
    assert type(base) is NSATransformerModel
    with torch.no_grad():
        tokens = LABELS.clamp(min=0)
        expected = model.model(**sources, decoder_input_ids=tokens).last_hidden_state
        assert torch.equal(base(**sources, decoder_input_ids=tokens).last_hidden_state, expected)


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


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"hidden_size": 18}, "num_attention_heads"),
        ({"num_hidden_layers": 0}, "num_hidden_layers"),
        ({"query_norm": "group"}, "query_norm"),
        ({"dropout": 1.5}, "dropout"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings"),
        ({"vocab_size": 0}, "vocab_size"),
    ],
    ids=str,
)
def test_configurations_that_cannot_be_are_refused(fields, named):
    with pytest.raises(ValueError, match=named):
        NSATransformerConfig(**{**SIZES, **fields})


def test_wrong_inputs_are_named():
    model, sources = tiny_translator(), random_sources([4, 2])
    with pytest.raises(ValueError, match=r"attention_mask .*\(2, 3\).*\(2, 4\)"):
        model(sources["input_ids"], sources["attention_mask"][:, :3], labels=LABELS[:2])
    with pytest.raises(ValueError, match=r"\(2, 0\)"):
        model(sources["input_ids"][:, :0], labels=LABELS[:2])
    with pytest.raises(ValueError, match="input_ids"):
        model(labels=LABELS[:2])
