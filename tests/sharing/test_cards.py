"""The text of cards: scores over seeds, and values that are text unless the template says otherwise."""

from dataclasses import replace

from hf_ngsan.sharing.cards import CardFacts, RecordedEvaluation, body, template
from tests.hub_stub import REPOSITORY
from tests.models.tiny import tiny_captioner
from tests.tables import each_row

SCORES = {"cider_d": 0.5, "bleu_4": 0.25}
ONE = RecordedEvaluation("scenes", "test", 4000, SCORES, {"cider_d": "cider_d|beams:1"}, weights="", seed=0)


def text_of(folder, **facts) -> str:
    return body(tiny_captioner(), folder, REPOSITORY, None, CardFacts(**facts))


def test_scores_over_seeds_stand_beside_those_of_the_model(tmp_path):
    others = [[replace(ONE, seed=1, scores={"cider_d": 0.7}), replace(ONE, split="train")], [replace(ONE, rows=5)]]
    text = text_of(tmp_path, evaluations=[ONE], other_seeds=others)
    assert "(4,000 rows)" in text and "(seed 0)" in text and "seeds 0, 1 |" in text
    assert "| cider_d | 0.5000 | 0.6000 ± 0.1414 |" in text and "| bleu_4 | 0.2500 |  |" in text
    assert "- `cider_d|beams:1`\n- `bleu_4`\n" in text
    alone = text_of(tmp_path, evaluations=[replace(ONE, seed=None)])
    assert "| metric | value |" in alone and "±" not in alone and "seed to seed" in alone
    assert "seed to seed" not in text


def test_sections_without_text_are_left_out(tmp_path):
    text = text_of(tmp_path, sections={"Data": "Flickr8k.", "Stages": ""})
    assert "## Data\n\nFlickr8k.\n\n## Limits" in text
    assert not {"## Stages", "## Examples"} & set(text.splitlines())


@each_row(
    ("expression", "text"),
    [("value", "&#60;hr&#62;"), ("value | code", "<code>&#60;hr&#62;</code>"), ("value | markdown", "<hr>")],
)
def test_a_value_is_text_unless_the_template_says_otherwise(expression, text):
    environment = template().environment
    assert environment.from_string("{{ " + expression + " }}").render(value="<hr>") == text
