"""A released captioner becomes a folder that transformers loads; invalid files cause errors."""

import collections
import pickle
import sys
import types
from pathlib import Path

import convert_rstnet as script
import pytest
import torch
from transformers import AutoModelForImageTextToText, AutoProcessor

from hf_ngsan.models.configuration_rstnet import RSTNetConfig
from hf_ngsan.models.modeling_rstnet import RSTNetForConditionalGeneration
from hf_ngsan.models.modeling_rstnet_language_model import RSTNetLanguageModel
from tests.golden import golden_folder
from tests.tables import each_row

WORDS = ["<unk>", "<pad>", "<bos>", "<eos>", "a", "dog", "red", "ball"]
HEADS = 2


@pytest.fixture
def released() -> dict[str, torch.Tensor]:
    """Weights of a tiny captioner with the names of the release, including state of decoding."""
    bert = {"model_type": "bert", "vocab_size": 9, "hidden_size": 12, "num_hidden_layers": 2}
    bert |= {"num_attention_heads": HEADS, "intermediate_size": 10, "max_position_embeddings": 16}
    sizes = {"visual_feature_size": 5, "hidden_size": 8, "num_attention_heads": HEADS, "intermediate_size": 6}
    sizes |= {"encoder_layers": 1, "plain_decoder_layers": 2, "geometry_hidden_size": 16, "max_position_embeddings": 11}
    sizes["language_model_config"] = {"text_encoder_config": bert}
    config = RSTNetConfig.from_release(vocab_size=len(WORDS), **sizes)
    model = RSTNetForConditionalGeneration(config)
    weights = {script.theirs(name): torch.randn_like(weight) for name, weight in model.state_dict().items()}
    for field in ("weight", "bias"):
        for head, head_weights in enumerate(weights.pop(f"encoder.WGs.{field}").split(1)):
            weights[f"encoder.WGs.{head}.{field}"] = head_weights
    weights["decoder.running_seq"] = torch.zeros(1)
    weights["decoder.layers.0.self_att.running_keys"] = torch.zeros(0, 8)
    weights["decoder.language_model.language_model.embeddings.position_ids"] = torch.arange(16)[None]
    weights["decoder.language_model.language_model.pooler.dense.weight"] = torch.zeros(12, 12)
    return weights


def language_weights(released) -> dict[str, torch.Tensor]:
    prefix = script.LANGUAGE_MODEL
    return {name.removeprefix(prefix): 2 * item for name, item in released.items() if name.startswith(prefix)}


@pytest.fixture
def files(released, tmp_path, monkeypatch) -> dict[str, str]:
    """The three files of a release, as their authors write them."""
    monkeypatch.chdir(tmp_path)
    training = {"epoch": 3, "use_rl": True, "best_cider": 1.2, "optimizer": {"state": {}}}
    torch.save({"state_dict": released, **training}, "rstnet.pth", _use_new_zipfile_serialization=False)
    torch.save({"state_dict": language_weights(released), **training}, "language.pth")
    write_vocabulary("vocab.pkl", WORDS, monkeypatch)
    return {"--captioner": "rstnet.pth", "--language-model": "language.pth", "--vocab": "vocab.pkl", "--output": "out"}


def write_vocabulary(path, words, monkeypatch):
    module = types.ModuleType("data.vocab")
    Vocab = type("Vocab", (), {"__module__": "data.vocab"})
    module.Vocab, module._default_unk_index = Vocab, script.no_word
    for name, value in (("module", "data.vocab"), ("qualname", "_default_unk_index"), ("name", "_default_unk_index")):
        monkeypatch.setattr(script.no_word, f"__{name}__", value)
    monkeypatch.setitem(sys.modules, "data", types.ModuleType("data"))
    monkeypatch.setitem(sys.modules, "data.vocab", module)
    vocabulary = Vocab()
    vocabulary.itos, vocabulary.freqs, vocabulary.vectors = list(words), collections.Counter(words), None
    vocabulary.stoi = collections.defaultdict(script.no_word, {word: index for index, word in enumerate(words)})
    with open(path, "wb") as file:
        pickle.dump(vocabulary, file)


def call(files: dict[str, str]) -> int:
    return script.main([part for pair in files.items() for part in pair])


def test_every_weight_arrives_where_it_belongs(released, files, tmp_path, capsys):
    assert call(files) == 0
    model = AutoModelForImageTextToText.from_pretrained("out")
    for name, weight in model.state_dict().items():
        theirs = script.theirs(name)
        if theirs.startswith("encoder.WGs."):
            field = theirs.rpartition(".")[2]
            expected = torch.cat([released[f"encoder.WGs.{head}.{field}"] for head in range(HEADS)])
        else:
            expected = released[theirs]
        assert torch.equal(weight, expected), name
    converted_model = RSTNetLanguageModel.from_pretrained("out/language_model")
    for name, weight in converted_model.state_dict().items():
        assert torch.equal(weight, 2 * released[script.LANGUAGE_MODEL + script.theirs_in_language_model(name)]), name
    lines = capsys.readouterr().out.splitlines()
    for name in released:
        kind = "left out" if "running" in name or "position_ids" in name or "pooler" in name else "used"
        assert f"rstnet.pth: {kind}: {name}" in lines
    assert "language.pth: used: pos_emb.weight" in lines
    assert sorted(path.name for path in tmp_path.iterdir()) == ["language.pth", "out", "rstnet.pth", "vocab.pkl"]


def test_sizes_tokens_and_words_are_read_off_the_files(files):
    assert call(files) == 0
    model, processor = AutoModelForImageTextToText.from_pretrained("out"), AutoProcessor.from_pretrained("out")
    config = model.config
    assert (config.encoder_layers, config.plain_decoder_layers, config.num_attention_heads) == (1, 2, HEADS)
    assert (config.max_position_embeddings, config.geometry_hidden_size, config.grid_size) == (11, 16, [7, 7])
    assert (config.pad_token_id, config.bos_token_id, config.eos_token_id) == (1, 2, 3)
    assert config.language_model_config.text_encoder_config.num_attention_heads == HEADS
    assert processor.tokenizer.get_vocab() == {word: index for index, word in enumerate(WORDS)}
    sequences = model.generate(visual_features=torch.rand(1, 49, 5))
    assert set(processor.batch_decode(sequences, skip_special_tokens=True)[0].split()) <= set(WORDS)
    assert model.generation_config.max_new_tokens == 11


class Trap:
    def __reduce__(self):
        return print, ("sprung",)


def saved(file: str, weights: dict, **changes: torch.Tensor | None) -> None:
    weights = {name: weight for name, weight in {**weights, **changes}.items() if weight is not None}
    torch.save({"state_dict": weights}, file)


SPOILED = {
    "a weight less": (lambda w: saved("rstnet.pth", w, **{"decoder.layers.1.lnorm2.bias": None}), "lnorm2.bias"),
    "a weight more": (lambda w: saved("rstnet.pth", w, **{"decoder.extra": torch.zeros(1)}), "decoder.extra"),
    "another shape": (
        lambda w: saved("rstnet.pth", w, **{"decoder.fc.weight": torch.zeros(8, 9)}),
        "decoder.fc.weight",
    ),
    "other words": (
        lambda w: saved("language.pth", language_weights(w), **{"proj_to_vocab.weight": torch.zeros(7, 8)}),
        "7",
    ),
    "a forbidden class": (lambda w: Path("vocab.pkl").write_bytes(pickle.dumps(Trap())), "print"),
    "a word twice": (lambda w: Path("vocab.pkl").write_bytes(pickle.dumps({"itos": [*WORDS[:-1], "a"]})), "'a'"),
    "a folder that exists": (lambda w: Path("out").mkdir(), "out"),
}


@each_row("fault", SPOILED)
def test_files_that_do_not_fit_become_nothing(fault, released, files, tmp_path, capsys):
    spoil, named = SPOILED[fault]
    spoil(released)
    before = sorted(tmp_path.rglob("*"))
    assert call(files) == 2
    printed = capsys.readouterr()
    [line] = printed.err.splitlines()
    assert named in line and printed.out == ""
    assert sorted(tmp_path.rglob("*")) == before


def test_the_authors_files(tmp_path, capsys):
    folder = golden_folder("rstnet")
    files = {
        "--captioner": str(folder / "rstnet_last.pth"),
        "--language-model": str(folder / "language_last.pth"),
        "--vocab": str(folder / "vocab.pkl"),
        "--output": str(tmp_path / "out"),
    }
    assert call(files) == 0
    assert "used: decoder.pos_emb.weight" in capsys.readouterr().out
    assert AutoModelForImageTextToText.from_pretrained(tmp_path / "out").config.vocab_size == 60
