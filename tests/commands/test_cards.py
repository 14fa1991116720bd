"""Cards of trained models: every number has its conditions, and nothing unknown is stated."""

import json
import shutil

import pytest
import torch
from huggingface_hub import ModelCard

from hf_ngsan.cli import main
from hf_ngsan.loading.models import ModelFolderError, load_model
from hf_ngsan.sharing import write_checkpoint
from hf_ngsan.sharing.cards import collect_card_facts, read_evaluations
from hf_ngsan.tasks import load_training_config
from tests.hub_stub import REPOSITORY
from tests.tables import each_row
from tests.tasks.tiny import DATA

SPEC = DATA["spec"]


@pytest.fixture(scope="module")
def evaluated(run, tmp_path_factory):
    """A copy of a training run whose best model was also evaluated twice on the test split."""
    folder = tmp_path_factory.mktemp("cards") / "run"
    shutil.copytree(run, folder)
    for limit in (4, 4, 5):
        options = ["--data", SPEC, "--num-beams", "1", "--limit", str(limit), "--record"]
        assert main(["evaluate", "--model", str(folder), *options]) == 0
    return folder


def written(folder, target, **options) -> ModelCard:
    model, processor = load_model(folder)
    write_checkpoint(model, processor, target, REPOSITORY, facts=collect_card_facts(folder, **options))
    return ModelCard.load(target / "README.md")


def test_the_card_of_a_run_tells_data_settings_and_scores(evaluated, tmp_path):
    card = written(evaluated, tmp_path / "model")
    [epoch] = map(json.loads, (evaluated / "history.jsonl").read_text().splitlines())
    results = {
        (item.dataset_split, item.metric_type): item for item in card.data.eval_results if item.dataset_type == SPEC
    }
    assert results["validation", "rouge_l"].metric_value == round(epoch["rouge_l"], 4) > 0
    prints = {split: results[split, "cider_d"].metric_args["fingerprint"] for split in ("validation", "test")}
    assert {"beams:2", "max:14", "tok:ptb", "df:references", "end:excluded"} <= set(prints["validation"].split("|"))
    assert "beams:1" in prints["test"].split("|") and "hf-ngsan:" in prints["test"]
    assert "df:" not in results["test", "bleu_4"].metric_args["fingerprint"]
    assert prints["test"] in card.text and "(5 rows)" in card.text
    assert SPEC in card.text and "seed 0" in card.text
    assert load_training_config(tmp_path / "model" / "training_config.yaml").training.batch_size == 8
    assert [item.rows for item in read_evaluations(tmp_path / "model")] == [None, 4, 5]


def test_a_split_that_chose_the_epoch_is_told_once(run, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(run, folder)
    [before] = collect_card_facts(folder).evaluations
    words = ["evaluate", "--model", str(folder), "--data", SPEC, "--split", "validation", "--record"]
    for settings in ([], ["--num-beams", "1"]):
        assert main([*words, *settings]) == 0
    actual, by_one_beam = collect_card_facts(folder).evaluations
    assert (actual.chose_epoch, by_one_beam.chose_epoch) == (True, False)
    assert before.fingerprints.items() <= actual.fingerprints.items()
    assert {name: actual.scores[name] for name in before.scores} == pytest.approx(before.scores)
    assert actual.scores.keys() == by_one_beam.scores.keys()


def test_scores_are_those_of_the_best_model_whatever_the_history_says(run, config, tmp_path):
    """The initial model of the second run remains its best model."""
    started, rate = tmp_path / "started", ["training.learning_rate=10", "training.warmup_epochs=0"]
    settings = [f"model.init_from={run / 'best'}", f"training.output_dir={started}", *rate]
    assert main(["train", "--config", str(config), *settings]) == 0
    shutil.copytree(run, tmp_path / "sorted")
    file = tmp_path / "sorted" / "history.jsonl"
    lines = [json.dumps(json.loads(line), sort_keys=True) + "\n" for line in file.read_text().splitlines()]
    file.write_text("".join(lines))
    [epoch] = map(json.loads, lines)
    for folder in (tmp_path / "sorted", started):
        [actual] = collect_card_facts(folder).evaluations
        assert actual.scores == {name: epoch[name] for name in actual.scores}, folder
        assert {"cider_d", "rouge_l", "bleu_4"} <= actual.scores.keys() and "loss" not in actual.scores, folder
        assert next(iter(actual.scores)) == "cider_d" and actual.chose_epoch, folder


@pytest.mark.slow
def test_scores_over_seeds(run, evaluated, config, tmp_path):
    other = tmp_path / "other"
    for seed, changes in ((1, []), (2, ["training.learning_rate=0.02"])):
        place = other / str(seed)
        words = [f"training.seed={seed}", f"training.output_dir={place}", *changes]
        assert main(["train", "--config", str(config), *words]) == 0
    card = written(evaluated, tmp_path / "model", other_runs=[other / "1"])
    values = [json.loads((place / "history.jsonl").read_text())["rouge_l"] for place in (evaluated, other / "1")]
    mean, half = sum(values) / 2, abs(values[0] - values[1]) / 2
    assert f"{mean:.4f} ± {half * 2**0.5:.4f}" in card.text and "seeds 0, 1" in card.text
    for place in (other / "2", run / "best" / "config.json", tmp_path / "model"):
        with pytest.raises(ModelFolderError):
            collect_card_facts(evaluated, [place])


def test_scores_of_other_weights_are_not_told(evaluated, tmp_path):
    folder = tmp_path / "model"
    shutil.copytree(evaluated / "best", folder)
    assert len(read_evaluations(folder)) == 2
    model, _ = load_model(folder)
    with torch.no_grad():
        model.lm_head.bias += 1
    model.save_pretrained(folder)
    assert read_evaluations(folder) == []
    assert not written(folder, tmp_path / "card").data.eval_results


@each_row("value", ["a\nb", "other"])
def test_a_licence_that_is_none_of_yaml_is_still_yaml(value, run, tmp_path):
    assert written(run, tmp_path / "model", license=value).data.license == value
