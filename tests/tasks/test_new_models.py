import pytest

from hf_ngsan.tasks.captioning import CaptioningRecipe
from hf_ngsan.tasks.captioning_models import new_captioner
from hf_ngsan.tasks.language_modeling import LanguageModelingRecipe, new_language_model
from hf_ngsan.tasks.question_answering import VisualQuestionAnsweringRecipe, new_question_answerer
from hf_ngsan.tasks.retrieval import RetrievalRecipe, new_dual_encoder
from hf_ngsan.tasks.translation import TranslationRecipe, new_translator
from hf_ngsan.training.recipe import RecipeError
from tests.tables import each_row


@each_row(
    ("build", "kind"),
    [
        (new_captioner, CaptioningRecipe),
        (new_language_model, LanguageModelingRecipe),
        (new_question_answerer, VisualQuestionAnsweringRecipe),
        (new_dual_encoder, RetrievalRecipe),
        (new_translator, TranslationRecipe),
    ],
)
@each_row("wrong", ["nonsense", "of another task"])
def test_a_model_is_built_only_for_its_own_task(build, kind, wrong):
    usual = kind.default_model_type
    model_type = ("mcan" if usual == "mhsan" else "mhsan") if wrong == "of another task" else wrong
    with pytest.raises(RecipeError, match=rf"model\.model_type.*{model_type}"):
        build(kind.from_dict({"model": {"model_type": model_type}}), [])


def test_null_is_the_usual_model_type():
    assert CaptioningRecipe.from_dict({"model": {"model_type": None, "dropout": 0.5}}).model == {
        "model_type": CaptioningRecipe.default_model_type,
        "dropout": 0.5,
    }
