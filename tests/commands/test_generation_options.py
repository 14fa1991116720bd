"""Options of `generate()` and of batches, in every command that generates text: each reaches the model."""

from pathlib import Path

import pytest

from hf_ngsan.loading import save_model
from hf_ngsan.models.modeling_nsa_transformer import NSATransformerForConditionalGeneration
from hf_ngsan.models.modeling_rstnet import RSTNetForConditionalGeneration
from hf_ngsan.models.processing_rstnet import RSTNetProcessor
from tests.models.nsa_transformer.tiny import tiny_translator
from tests.models.rstnet.tiny import tiny_captioner
from tests.models.tiny import tiny_tokenizer
from tests.tables import each_row

from .running import prints

SCENES = ["--data", "scenes:size=12,validation=4,test=6"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """A captioner with visualness and a translator."""
    folder = tmp_path_factory.mktemp("models")
    tokenizer = tiny_tokenizer()
    save_model(tiny_captioner(visual_feature_size=10), RSTNetProcessor(tokenizer=tokenizer), folder / "captioner")
    tiny_translator(vocab_size=len(tokenizer)).save_pretrained(folder / "translator")
    tokenizer.save_pretrained(folder / "translator")
    return folder


@pytest.fixture
def generated(folder, monkeypatch, capsys):
    """Runs a command; returns the arguments and the number of rows of each call of `generate()`."""

    def run(command: str, *options: object) -> tuple[list[dict], list[int]]:
        calls, sizes = [], []
        for kind in (RSTNetForConditionalGeneration, NSATransformerForConditionalGeneration):

            def generate(self, *args, original=kind.generate, **settings):
                begun = settings.get("decoder_input_ids")
                if begun is None or begun.shape[1] == 1:  # else relations of scenes are completed, too
                    calls.append(settings)
                    sizes.append(len(settings["input_ids" if "input_ids" in settings else "visual_features"]))
                return original(self, *args, **settings)

            monkeypatch.setattr(kind, "generate", generate)
        if command == "translate":
            arguments = ["--model", folder / "translator", "a red dog", "a dog", "a cat", "a red cat"]
        else:
            arguments = ["--model", folder / "captioner", *SCENES]
        prints(capsys, command, *arguments, *options)
        monkeypatch.undo()
        return calls, sizes

    return run


@each_row("command", ["caption", "evaluate", "visualness", "translate"])
def test_each_option_reaches_the_model(generated, command):
    options = {"num_beams": 2, "max_new_tokens": 3, "length_penalty": 0.5, "no_repeat_ngram_size": 2}
    arguments = ["--num-beams", 2, "--max-new-tokens", 3, "--generate", "length_penalty=0.5", "no_repeat_ngram_size=2"]
    calls, sizes = generated(command, *arguments, "--batch-size", 4)
    assert all({name: call.get(name) for name in options} == options for call in calls)
    assert sizes == ([4] if command == "translate" else [4, 2])
    rows = () if command == "translate" else ("--split", "validation", "--limit", 3)
    calls, sizes = generated(command, "--batch-size", 1, *rows)
    assert not any(options.keys() & call.keys() for call in calls) and sizes == [1] * len(sizes)
    assert len(sizes) == (4 if command == "translate" else 3)
    if rows:
        assert sum(generated(command, *rows[:2], "--max-new-tokens", 1)[1]) == 4
