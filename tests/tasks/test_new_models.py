import pytest
import torch
from safetensors.torch import load_file
from transformers import GenerationConfig

from hf_ngsan.loading.models import save_model
from hf_ngsan.tasks.captioning import CaptioningConfig, CaptioningTask
from hf_ngsan.tasks.captioning_models import new_captioner
from hf_ngsan.tasks.language_modeling import LanguageModelingConfig, new_language_model
from hf_ngsan.tasks.new_models import checked_generation
from hf_ngsan.tasks.question_answering import VisualQuestionAnsweringConfig, new_question_answerer
from hf_ngsan.tasks.registry import register_task, task_class, task_class_of
from hf_ngsan.tasks.retrieval import RetrievalConfig, new_dual_encoder
from hf_ngsan.tasks.translation import TranslationConfig, new_translator
from hf_ngsan.training.config import ConfigError
from tests.tables import each_row
from tests.tasks import test_language_modeling as tiny_language_model
from tests.tasks import tiny_questions, tiny_translation


@each_row(
    ("build", "kind"),
    [
        (new_captioner, CaptioningConfig),
        (new_language_model, LanguageModelingConfig),
        (new_question_answerer, VisualQuestionAnsweringConfig),
        (new_dual_encoder, RetrievalConfig),
        (new_translator, TranslationConfig),
    ],
)
@each_row("wrong", ["nonsense", "of another task"])
def test_a_model_is_built_only_for_its_own_task(build, kind, wrong):
    usual = kind.default_model_type
    model_type = ("mcan" if usual == "mhsan" else "mhsan") if wrong == "of another task" else wrong
    with pytest.raises(ConfigError, match=rf"model\.model_type.*{model_type}"):
        build(kind.from_dict({"model": {"model_type": model_type}}), [])


def test_null_is_the_usual_model_type():
    assert CaptioningConfig.from_dict({"model": {"model_type": None, "dropout": 0.5}}).model == {
        "model_type": CaptioningConfig.default_model_type,
        "dropout": 0.5,
    }


def test_a_trained_model_is_not_of_another_type(scene_captioner):
    sections = {"model": {"init_from": str(scene_captioner), "model_type": "rstnet"}}
    with pytest.raises(ConfigError, match=r"model\.init_from.* ngsan"):
        new_captioner(CaptioningConfig.from_dict(sections), [])


def test_an_argument_of_generation_needs_the_one_that_it_goes_with():
    with pytest.raises(ValueError, match="penalty_alpha"):
        checked_generation({"candidates": 3}, GenerationConfig())


def test_models_of_every_task_are_trained_further(tmp_path):
    """Other fields of the section `model` change the trained one's configuration."""
    questions, pairs = tiny_questions.save_questions(tmp_path / "questions"), tmp_path / "pairs"
    for build, kind, sections, rows in (
        (new_language_model, LanguageModelingConfig, {"model": tiny_language_model.MODEL}, ["a red ball"] * 5),
        (new_translator, TranslationConfig, tiny_translation.tiny_sections(pairs), None),
        (new_question_answerer, VisualQuestionAnsweringConfig, tiny_questions.tiny_sections(tmp_path, questions), None),
    ):
        config = kind.from_dict(sections)
        rows = rows or task_class_of(config.model)(config).load_rows("train")
        folder = tmp_path / kind.__name__
        save_model(*build(config, rows), folder)
        further, _ = build(kind.from_dict({"model": {"init_from": str(folder), "dropout": 0.375}}), [])
        assert further.config.dropout == 0.375
        weights = load_file(folder / "model.safetensors")
        assert all(
            torch.equal(weight, weights[name]) for name, weight in further.state_dict().items() if name in weights
        )


def test_a_registered_task_is_found_by_its_name(monkeypatch):
    monkeypatch.setattr("hf_ngsan.tasks.registry.TASKS", {})
    register_task("counting", CaptioningTask)
    assert task_class("counting") is CaptioningTask
