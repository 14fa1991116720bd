"""Training and evaluating a dual encoder: stages, resuming, scores, and errors."""

import json

import numpy as np
import pytest
import torch
import yaml
from safetensors.torch import load_file

from hf_ngsan.cli import main
from hf_ngsan.data import load_data
from hf_ngsan.loading.models import load_model
from hf_ngsan.models.text_encoders import make_text_encoder
from hf_ngsan.tasks import RetrievalTask, embed_pairs, new_dual_encoder, new_models, train
from hf_ngsan.tasks.retrieval import pairs_of
from tests.commands.running import fails
from tests.models.mhsan.tiny import BERT, tiny_config, tiny_processor
from tests.models.tiny import tiny_tokenizer
from tests.tables import each_row
from tests.tasks.tiny_retrieval import DATA, tiny_sections, tiny_training_config

SPEC = DATA["spec"]


def weights(folder) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def changed(before: dict, after: dict) -> set[str]:
    return {name.split(".")[0] for name, value in before.items() if not torch.equal(value, after[name])}


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    folder = tmp_path_factory.mktemp("retrieval") / "run"
    train(tiny_training_config(folder))
    return folder


def test_training_changes_everything_and_reports_recalls(run):
    history = [json.loads(line) for line in (run / "history.jsonl").read_text().splitlines()]
    assert {"loss", "image_diversity", "text_diversity", "batch_recall", "rsum", "text_to_image_r1"} <= history[
        -1
    ].keys()
    assert history[1]["loss"] < history[0]["loss"]
    model, processor = load_model(run / "last", "retrieval")
    assert processor.tokenizer("a red circle")["input_ids"] == processor.tokenizer.convert_tokens_to_ids(
        ["a", "red", "circle"]
    )
    assert (model.config.diversity_weight, model.config.text_config.vocab_size) == (0.1, len(processor.tokenizer))


def test_scores_are_those_of_single_rows(run):
    """One row and one caption at a time, ranked by sorting."""
    model, processor = load_model(run, "retrieval")
    rows = load_data(SPEC, "test")
    pairs = embed_pairs(model, processor, rows, batch_size=4)
    with torch.no_grad():
        images = torch.stack(
            [
                model.get_image_features(**processor(visual_features=row["visual_features"])).pooler_output[0]
                for row in rows
            ]
        )
        captions = [caption for row in rows for caption in row["captions"]]
        texts = torch.cat([model.get_text_features(**processor(text=caption)).pooler_output for caption in captions])
    np.testing.assert_allclose(pairs.images, images.numpy(), atol=1e-6)
    np.testing.assert_allclose(pairs.captions, texts.numpy(), atol=1e-6)
    image_of_text = np.repeat(np.arange(len(rows)), [len(row["captions"]) for row in rows])
    assert pairs.caption_images.tolist() == image_of_text.tolist()
    scores = images.numpy() @ texts.numpy().T
    actual = [image_of_text[np.argsort(-row, kind="stable")[0]] == image for image, row in enumerate(scores)]
    assert pairs.scores()["image_to_text_r1"] == pytest.approx(100 * np.mean(actual))


@pytest.fixture(scope="module")
def staged(tmp_path_factory):
    folder = tmp_path_factory.mktemp("staged") / "run"
    return folder, train(tiny_training_config(folder, training={"stage": "staged", "train_word_vectors": False}))


def test_stages_train_more_and_more(staged):
    folder, result = staged
    assert [entry["stage"] for entry in result.history] == ["projection", "text", "image"]
    torch.manual_seed(0)
    task = RetrievalTask(tiny_training_config(folder))
    from accelerate.utils import set_seed

    set_seed(task.config.training.seed)
    start = {name: value.clone() for name, value in task.build(task.load_rows("train"))[0].state_dict().items()}
    first, second, last = weights(folder / "projection"), weights(folder / "text"), weights(folder / "last")
    assert changed(start, first) == {"image_projection"}
    assert changed(first, second) <= {"image_projection", "text", "text_pooling", "text_projection"}
    assert "image_states" not in changed(start, second)
    assert torch.equal(start["text.embed_tokens.weight"], last["text.embed_tokens.weight"])
    everything = {"image_projection", "image_states", "image_pooling"}
    assert result.best_epoch < 3 or everything <= changed(second, last)


def test_a_staged_run_resumes_bit_exactly(staged, tmp_path, monkeypatch):
    config = tiny_training_config(tmp_path / "run", training={"stage": "staged", "train_word_vectors": False})
    evaluate, calls = RetrievalTask.evaluate, []

    def dying(self, *arguments):
        calls.append(1)
        if len(calls) > 2:
            raise KeyboardInterrupt
        return evaluate(self, *arguments)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(RetrievalTask, "evaluate", dying)
        train(config)
    train(config, resume=True)
    assert not changed(weights(staged[0] / "last"), weights(tmp_path / "run" / "last"))


VISION = {"backbone_config": {"model_type": "ngsan_vgg", "hidden_sizes": [4, 8], "depths": [1, 1]}, "grid_size": [2, 2]}


def test_the_vision_encoder_is_trained_in_the_last_stage_only(tmp_path):
    data = {"spec": "scenes:size=8,validation=4,seed=3,images=true", "image_size": 16, "captions_per_image": 1}
    model = {"vision_config": {**VISION, "frozen": False}}
    config = tiny_training_config(tmp_path / "run", model=model, data=data, training={"stage": "staged"})
    train(config)
    task = RetrievalTask(config)
    dual_encoder, processor = task.build(task.load_rows("train"))
    frozen = []
    for stage in task.stages(dual_encoder, processor, task.load_rows("train")):
        stage.prepare(dual_encoder)
        dual_encoder.train()
        parameters = dual_encoder.vision.parameters()
        frozen.append((dual_encoder.vision.is_frozen, any(item.requires_grad for item in parameters)))
        assert dual_encoder.vision.config.frozen is False, "it is saved with the best model, whatever the stage"
        assert dual_encoder.vision.backbone.training is not frozen[-1][0]
    assert frozen == [(True, False), (True, False), (False, True)]
    for name in ("projection", "text", "last", "best"):
        loaded, _ = load_model(tmp_path / "run" / name, "retrieval")
        assert loaded.config.vision_config.frozen is False, name
    assert "vision" not in changed(weights(tmp_path / "run" / "projection"), weights(tmp_path / "run" / "text"))


def test_a_run_continues_from_a_trained_model(run, tmp_path):
    config = tiny_training_config(tmp_path / "run")
    sections = {"init_from": str(run), "dropout": 0.1}
    config = type(config).from_dict(
        {**tiny_sections(tmp_path / "run"), "model": sections, "contrastive": {"loss": "all"}}
    )
    model, _ = new_dual_encoder(config, [])
    assert (model.config.dropout, model.config.loss) == (0.1, "all")
    assert not changed(weights(run / "best"), model.state_dict())


def test_a_pretrained_text_encoder_brings_its_tokenizer(tmp_path, monkeypatch):
    monkeypatch.setattr(new_models, "MAX_UNKNOWN", 1.0)  # the tokenizer has few words
    encoder, tokenizer = make_text_encoder(tiny_config(text_config=BERT).text_config), tiny_tokenizer()
    tokenizer.backend_tokenizer.enable_truncation(2)
    encoder.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    model = {"text_config": None, "text_pretrained": str(tmp_path)}
    training = {"text_learning_rate": 0.0, "epochs": 1}
    config = tiny_training_config(tmp_path / "run", model=model, training=training)
    dual_encoder, processor = new_dual_encoder(config, ["a zebra"], 10)
    assert processor(text="a red ball")["input_ids"].shape == (1, 3)
    assert "max_length" not in processor.tokenizer.init_kwargs
    trained = "text_projection.weight", "text.encoder.layer.0.output.dense.weight"
    before = [dual_encoder.get_parameter(name).clone() for name in trained]
    train(config)
    after = [load_model(tmp_path / "run", "retrieval")[0].get_parameter(name) for name in trained]
    assert [torch.equal(*pair) for pair in zip(before, after, strict=True)] == [False, True]


@each_row("stage", ["joint", "staged"])
def test_frozen_layers_of_a_text_encoder_stay_as_they_are(tmp_path, stage, monkeypatch):
    monkeypatch.setattr(new_models, "MAX_UNKNOWN", 1.0)
    make_text_encoder(tiny_config(text_config=BERT).text_config).save_pretrained(tmp_path)
    tiny_tokenizer().save_pretrained(tmp_path)
    model = {"text_config": None, "text_pretrained": str(tmp_path), "frozen_text_layers": 1}
    config = tiny_training_config(
        tmp_path / "run", model=model, training={"stage": stage, "epochs": 1, "ema_decay": 0.9}
    )
    before, _ = new_dual_encoder(config, [], 10)
    train(config)
    after, _ = load_model(tmp_path / "run", "retrieval")
    weights_after = after.text.state_dict()
    different = [name for name, item in before.text.state_dict().items() if not torch.equal(item, weights_after[name])]
    assert different and all(name.startswith("encoder.layer.1.") for name in different)


def test_pairs_have_the_same_number_of_captions():
    batch = pairs_of(
        tiny_processor(),
        [["red ball", None], ["a blue box", "..."]],
        max_length=2,
        visual_features=[torch.ones(1, 12)] * 2,
    )
    assert batch["input_ids"].shape == (4, 2)
    assert torch.equal(batch["input_ids"][0], batch["input_ids"][1])


@each_row(
    ("sections", "message"),
    [
        ({"model": {"margin": 0.3}}, r"model\.margin.*contrastive\.margin"),
        ({"model": {"visual_feature_size": 7}}, "dimension 10"),
        ({"evaluation": {"metric": "cider"}}, r"evaluation\.metric"),
        ({"evaluation": {"folds": 4}}, r"folds is 4.* 6 images"),
        ({"augmentation": {"flip": 0.5}}, "augmentation"),
    ],
)
def test_settings_that_cannot_work(tmp_path, sections, message):
    with pytest.raises((ValueError, OSError), match=message):
        train(tiny_training_config(tmp_path / "run", **sections))
    assert not (tmp_path / "run").exists()


def test_the_commands_train_and_evaluate(tmp_path, capsys):
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(tiny_sections(tmp_path / "run", training={"epochs": 1})))
    assert main(["train", "--config", str(tmp_path / "tiny.yaml")]) == 0
    capsys.readouterr()
    arguments = ["evaluate", "--model", str(tmp_path / "run"), "--data", SPEC, "--output", str(tmp_path / "ranks.json")]
    assert main([*arguments, "--folds", "2"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert (printed["images"], printed["captions"]) == (6, 30)
    ranks = json.loads((tmp_path / "ranks.json").read_text())
    assert [len(ranks[direction]) for direction in ("image_to_text", "text_to_image")] == [6, 30]
    assert printed["all"]["text_to_image_r1"] == pytest.approx(100 * np.mean(np.array(ranks["text_to_image"]) == 1))
    assert printed["mean of 2 folds"]["rsum"] >= printed["all"]["rsum"]
    assert "--folds 4" in fails(capsys, *arguments, "--folds", "4")
    assert "--metrics" in fails(capsys, *arguments, "--metrics", "bleu")
