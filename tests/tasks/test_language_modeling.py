"""A language model is trained, scored by perplexity, and used by a captioner that is trained afterwards."""

import itertools
import json

import pytest
import torch
import yaml
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

from hf_ngsan.loading.models import load_captioner, load_model
from hf_ngsan.tasks import load_training_config, train
from hf_ngsan.tasks.caption_rows import load_rows
from hf_ngsan.tasks.language_modeling import LanguageModelingConfig, evaluate_language_model, new_language_model
from tests.commands.running import fails, prints
from tests.tables import each_row
from tests.tasks.tiny import DATA, EVALUATION, TRAINING

ENCODER = {
    "model_type": "bert",
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 20,
}
SIZES = {"hidden_size": 16, "num_attention_heads": 2, "intermediate_size": 20}
MODEL = {"model_type": "rstnet_language_model", "text_encoder_config": ENCODER, **SIZES}


def sections(folder, model=(), **training) -> dict:
    return {
        "model": {**MODEL, **dict(model)},
        "data": dict(DATA),
        "training": {**TRAINING, "output_dir": str(folder), **training},
        "evaluation": {"batch_size": 7},
    }


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of a run, and its result."""
    folder = tmp_path_factory.mktemp("language") / "model"
    return folder, train(LanguageModelingConfig.from_dict(sections(folder, epochs=4)))


@each_row("attention", ["causal", "bidirectional"])
def test_perplexity_is_that_of_every_word_given_those_before_it(attention):
    """The release's text encoder must not read the word that it predicts."""
    rows = load_rows(DATA["spec"], "validation").select(range(3))
    captions = [caption for texts in rows["captions"] for caption in texts]
    config = LanguageModelingConfig.from_dict(
        {**sections("unused", {"language_attention": attention}), "training": {"output_dir": "unused"}}
    )
    model, processor = new_language_model(config, captions)
    model.eval()
    scores = evaluate_language_model(model, processor, rows, batch_size=2)
    losses = []
    for caption in captions:
        words, cache = [1, *processor(captions=[caption])["labels"][0].tolist()], None
        for word, following in itertools.pairwise(words):
            with torch.no_grad():
                outputs = model(torch.tensor([[word]]), cache=cache, use_cache=True)
            cache = outputs.cache
            losses.append(-outputs.logits[0, -1].log_softmax(-1)[following].item())
    assert scores["loss"] == pytest.approx(sum(losses) / len(losses), abs=1e-4)


@pytest.mark.parametrize("stage", ["xe", pytest.param("auto", marks=pytest.mark.slow)])
def test_a_captioner_takes_the_language_model_and_its_vocabulary(stage, trained, tmp_path):
    folder, _ = trained
    config = tmp_path / "captioner.yaml"
    fields = {"model_type": "rstnet", **SIZES, "encoder_layers": 1, "plain_decoder_layers": 1}
    fields |= {"geometry_hidden_size": 4, "pretrained_language_model": str(folder)}
    training = {**TRAINING, "epochs": 1, "output_dir": str(tmp_path / "run"), "stage": stage}
    critical = {"epochs": 1, "samples_per_image": 2, "decoding": "beam", "baseline": "mean", "max_new_tokens": 6}
    written = {"model": fields, "data": DATA, "training": training, "self_critical": critical, "evaluation": EVALUATION}
    config.write_text(yaml.safe_dump(written))
    train(load_training_config(config))
    captioner, processor = load_captioner(tmp_path / "run")
    language_model, text_processor = load_model(folder, "language_modeling")
    assert processor.tokenizer.get_vocab() == text_processor.tokenizer.get_vocab()
    loaded_weights = captioner.model.decoder.language_model.state_dict()
    for name, weight in language_model.state_dict().items():
        assert torch.equal(loaded_weights[name], weight), name


@pytest.fixture
def text_encoder(tmp_path) -> str:
    """A folder that transformers can load: a BERT and a tokenizer of word pieces."""
    pieces = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "a", "circle", "##s", "t", "##h", "##e", "##r", "##i", "##n", "##g"]
    pieces += list("abcdefghijklmnopqrsuvwxyz")[1:] + [f"##{letter}" for letter in "abcdfjklmopqtuvwxyz"]
    backend = Tokenizer(
        models.WordPiece({piece: index for index, piece in enumerate(dict.fromkeys(pieces))}, unk_token="[UNK]")
    )
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, **special)
    tokenizer.save_pretrained(tmp_path / "encoder")
    BertModel(BertConfig.from_dict({**ENCODER, "vocab_size": len(tokenizer)})).save_pretrained(tmp_path / "encoder")
    return str(tmp_path / "encoder")


def config_around(text_encoder: str) -> LanguageModelingConfig:
    fields = sections("unused", {"pretrained_text_encoder": text_encoder})
    del fields["model"]["text_encoder_config"]
    return LanguageModelingConfig.from_dict(fields)


def test_words_are_aligned_with_the_pieces_of_a_pretrained_text_encoder(text_encoder):
    model, processor = new_language_model(config_around(text_encoder), ["a circle", "the ring"])
    vocabulary = processor.tokenizer.get_vocab()
    pieces = {
        word: [entry for entry in model.word_pieces[vocabulary[word]].tolist() if entry >= 0] for word in vocabulary
    }
    assert (pieces["<pad>"], pieces["<unk>"], pieces["<s>"], pieces["</s>"]) == ([0], [1], [2], [3])
    assert (pieces["a"], pieces["circle"], pieces["the"]) == ([4], [5], [7, 8, 9])
    weights = BertModel.from_pretrained(text_encoder).state_dict()
    assert torch.equal(
        model.text_encoder.embeddings.word_embeddings.weight, weights["embeddings.word_embeddings.weight"]
    )


def test_the_command_evaluates_a_language_model(trained, capsys):
    scores = json.loads(prints(capsys, "evaluate", "--model", trained[0], "--data", DATA["spec"], "--limit", 3))
    model, processor = load_model(trained[0], "language_modeling")
    rows = load_rows(DATA["spec"], "test").select(range(3))
    assert scores == pytest.approx(evaluate_language_model(model, processor, rows))
    assert "--folds" in fails(capsys, "evaluate", "--model", trained[0], "--data", DATA["spec"], "--folds", 3)
