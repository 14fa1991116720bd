"""A released captioner becomes a folder that transformers loads; files that do not fit become nothing."""

import collections
import pickle
import sys
import types

import convert_rstnet as script
import pytest
import torch
from state_dicts import ConversionError
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
    """Weights of a tiny captioner under the names of the release, with state of decoding among them."""
    bert = {"model_type": "bert", "vocab_size": 9, "hidden_size": 12, "num_hidden_layers": 2}
    bert |= {"num_attention_heads": HEADS, "intermediate_size": 10, "max_position_embeddings": 16}
    config = RSTNetConfig.from_release(
        vocab_size=len(WORDS),
        visual_feature_size=5,
        hidden_size=8,
        num_attention_heads=HEADS,
        intermediate_size=6,
        encoder_layers=1,
        plain_decoder_layers=2,
        geometry_hidden_size=16,
        max_position_embeddings=11,
        language_model_config={"text_encoder_config": bert},
    )
    model = RSTNetForConditionalGeneration(config)
    weights = {script.theirs(name): torch.randn_like(weight) for name, weight in model.state_dict().items()}
    for field in ("weight", "bias"):
        for head, own in enumerate(weights.pop(f"encoder.WGs.{field}").split(1)):
            weights[f"encoder.WGs.{head}.{field}"] = own
    weights["decoder.running_seq"] = torch.zeros(1)
    weights["decoder.layers.0.self_att.running_keys"] = torch.zeros(0, 8)
    weights["decoder.language_model.language_model.embeddings.position_ids"] = torch.arange(16)[None]
    weights["decoder.language_model.language_model.pooler.dense.weight"] = torch.zeros(12, 12)
    return weights


def language_weights(released) -> dict[str, torch.Tensor]:
    prefix = script.LANGUAGE_MODEL
    return {name.removeprefix(prefix): 2 * one for name, one in released.items() if name.startswith(prefix)}


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
    monkeypatch.setattr(script.no_word, "__module__", "data.vocab")
    monkeypatch.setattr(script.no_word, "__qualname__", "_default_unk_index")
    monkeypatch.setattr(script.no_word, "__name__", "_default_unk_index")
    monkeypatch.setitem(sys.modules, "data", types.ModuleType("data"))
    monkeypatch.setitem(sys.modules, "data.vocab", module)
    vocabulary = Vocab()
    vocabulary.itos, vocabulary.freqs, vocabulary.vectors = list(words), collections.Counter(words), None
    vocabulary.stoi = collections.defaultdict(script.no_word, {word: index for index, word in enumerate(words)})
    with open(path, "wb") as file:
        pickle.dump(vocabulary, file)


def call(files: dict[str, str], **changes: str) -> int:
    changed = {f"--{name.replace('_', '-')}": value for name, value in changes.items()}
    return script.main([one for pair in {**files, **changed}.items() for one in pair])


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
    own = RSTNetLanguageModel.from_pretrained("out/language_model")
    for name, weight in own.state_dict().items():
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


def test_heads_of_bert_can_be_given(files):
    assert call(files, text_encoder_heads="3") == 0
    loaded = RSTNetConfig.from_pretrained("out")
    assert loaded.language_model_config.text_encoder_config.num_attention_heads == 3


@each_row(
    ("contents", "heads"),
    [('{"bert": {"num_attention_heads": 6}}', 6), ('{"bert": {}}', HEADS), ("[]", HEADS), ("no JSON", HEADS)],
)
def test_heads_of_bert_are_read_beside_the_checkpoint(contents, heads, files, tmp_path):
    (tmp_path / "config.json").write_text(contents)
    assert call(files) == 0
    assert RSTNetConfig.from_pretrained("out").language_model_config.text_encoder_config.num_attention_heads == heads


def test_heads_of_bert_that_cannot_be(files, tmp_path, capsys):
    (tmp_path / "config.json").write_text('{"bert": {"num_attention_heads": 0}}')
    assert call(files) == 2
    assert "config.json" in capsys.readouterr().err
    assert call(files, text_encoder_heads="5") == 2
    assert "--text-encoder-heads" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


BAD_WEIGHTS = {
    "missing": (lambda released: released.pop("decoder.layers.1.lnorm2.bias"), "decoder.layers.1.lnorm2.bias"),
    "unknown": (lambda released: released.update({"decoder.layers.7.extra": torch.zeros(1)}), "decoder.layers"),
    "shape": (lambda released: released.update({"decoder.fc.weight": torch.zeros(8, 9)}), "decoder.fc.weight"),
    "no number": (lambda released: released["encoder.fc.bias"].fill_(torch.nan), "encoder.fc.bias"),
}


@each_row("name", BAD_WEIGHTS)
def test_weights_that_do_not_fit_become_nothing(name, released, files, tmp_path, capsys):
    spoil, message = BAD_WEIGHTS[name]
    released = {weight: value.clone() for weight, value in released.items()}
    spoil(released)
    torch.save({"state_dict": released}, "rstnet.pth")
    before = sorted(path.name for path in tmp_path.iterdir())
    assert call(files) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert message in line
    assert sorted(path.name for path in tmp_path.iterdir()) == before


@each_row(("name", "shape"), [("proj_to_vocab.weight", (7, 8)), ("proj_to_caption_model.weight", (10, 12))])
def test_a_language_model_that_does_not_belong_to_the_captioner(name, shape, released, files, tmp_path, capsys):
    torch.save({"state_dict": {**language_weights(released), name: torch.zeros(shape)}}, "language.pth")
    assert call(files) == 2
    assert str(shape[0]) in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


class Trap:
    def __reduce__(self):
        return print, ("sprung",)


BAD_VOCABULARIES = {
    "a forbidden class": (lambda: pickle.dumps(Trap()), "print"),
    "no special tokens": (lambda: pickle.dumps({"itos": ["a", "dog"]}), "<pad>"),
    "a word twice": (lambda: pickle.dumps({"itos": [*WORDS[:-1], "a"]}), "'a'"),
    "a word too few": (lambda: pickle.dumps({"itos": WORDS[:-1]}), "7 words"),
}


@each_row("name", BAD_VOCABULARIES)
def test_vocabularies_that_are_none(name, files, tmp_path, capsys):
    make, message = BAD_VOCABULARIES[name]
    (tmp_path / "vocab.pkl").write_bytes(make())
    assert call(files) == 2
    captured = capsys.readouterr()
    assert captured.out == "" and message in captured.err
    assert not (tmp_path / "out").exists()


def test_a_checkpoint_that_names_a_forbidden_class(files, tmp_path, capsys):
    torch.save({"state_dict": {"weight": Trap()}}, "rstnet.pth")
    assert call(files) == 2
    assert "sprung" not in "".join(capsys.readouterr())
    assert not (tmp_path / "out").exists()


def test_a_folder_that_exists_is_left_alone(files, tmp_path):
    (tmp_path / "out").mkdir()
    assert call(files) == 2
    assert not list((tmp_path / "out").iterdir())


def test_a_plain_list_of_words_will_do(tmp_path):
    (tmp_path / "vocab.pkl").write_bytes(pickle.dumps({"itos": WORDS}))
    assert script.load_words(tmp_path / "vocab.pkl") == WORDS
    with pytest.raises(ConversionError):
        script.load_words(__file__)


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
