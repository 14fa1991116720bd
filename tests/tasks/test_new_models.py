import pytest

from hf_ngsan.tasks.captioning import CaptioningConfig
from hf_ngsan.tasks.captioning_models import new_captioner
from hf_ngsan.tasks.language_modeling import LanguageModelingConfig, new_language_model
from hf_ngsan.tasks.question_answering import VisualQuestionAnsweringConfig, new_question_answerer
from hf_ngsan.tasks.retrieval import RetrievalConfig, new_dual_encoder
from hf_ngsan.tasks.translation import TranslationConfig, new_translator
from hf_ngsan.training.config import ConfigError
from tests.tables import each_row


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
