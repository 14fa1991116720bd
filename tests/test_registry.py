"""Registration: with any order of imports, Auto classes load our classes, and those of other models do not change."""

import json
from pathlib import Path

import pytest
from transformers import pipeline, pipelines
from transformers.pipelines.image_text_to_text import ImageTextToTextPipeline as StockPipeline

import hf_ngsan
from hf_ngsan import registry
from hf_ngsan.loading.models import save_model
from tests.guests.tiny import tiny
from tests.loading.test_hub import run_python
from tests.models.mcan import tiny as mcan
from tests.models.tiny import tiny_captioner, tiny_processor
from tests.models.tiny_photos import PHOTOS

OURS = """
import json
from transformers import AutoConfig, AutoModel, AutoModelForImageTextToText, AutoProcessor, pipeline
from transformers.utils import logging
logging.disable_progress_bar()

folder = {folder!r}
pipe = pipeline("image-to-text", model=folder)
found = [
    AutoConfig.from_pretrained(folder),
    AutoModelForImageTextToText.from_pretrained(folder),
    AutoProcessor.from_pretrained(folder),
    pipe,
    AutoModel.from_config(pipe.model.config),
]
row = {{"visual_features": [[0.5] * 12] * 3, "visual_boxes": [[0, 0, 0.5, 0.5], [0, 0, 1, 1], [0.5, 0, 1, 1]]}}
answer = pipe(row, num_beams=2)
print(json.dumps([type(one).__module__ + "." + type(one).__name__ for one in found] + [len(answer)]))
"""
ORDERS = {
    "package first, and again": """
import importlib, transformers
import hf_ngsan
importlib.reload(hf_ngsan)
""",
    "auto classes first": """
from transformers import AutoConfig, AutoModel, AutoModelForImageTextToText, AutoProcessor, pipeline
import transformers.models.auto.modeling_auto, transformers.models.auto.processing_auto
import hf_ngsan
""",
}


@pytest.fixture(scope="module")
def checkpoints(tmp_path_factory) -> dict[str, Path]:
    """The same captioner saved with its code and, as transformers saves it, without."""
    folders = {name: tmp_path_factory.mktemp(name) for name in ("code", "plain")}
    hf_ngsan.save_for_hub(tiny_captioner(), tiny_processor(), folders["code"])
    tiny_captioner().save_pretrained(folders["plain"])
    tiny_processor().save_pretrained(folders["plain"])
    return folders


@pytest.mark.slow
@pytest.mark.parametrize(("order", "kind"), [*zip(ORDERS, ("code", "plain"), strict=True)])
def test_order_of_imports_does_not_matter_and_nothing_is_said(order, kind, checkpoints, tmp_path):
    process = run_python(ORDERS[order] + OURS.format(folder=str(checkpoints[kind])), tmp_path)
    assert process.stderr == ""
    models = "hf_ngsan.models"
    assert json.loads(process.stdout.splitlines()[-1]) == [
        f"{models}.configuration_ngsan.NGSANConfig",
        f"{models}.modeling_ngsan.NGSANForConditionalGeneration",
        f"{models}.processing_ngsan.NGSANProcessor",
        "hf_ngsan.loading.pipelines.CaptioningPipeline",
        f"{models}.modeling_ngsan.NGSANModel",
        1,
    ]


@pytest.fixture
def git():
    return tiny("git")


def test_models_of_others_keep_the_stock_pipeline(git):
    model, processor = git
    pipe = pipeline("image-text-to-text", model=model, processor=processor)
    assert type(pipe) is StockPipeline
    with pytest.raises(KeyError):
        pipeline("summarization", model=model)


def test_questions_have_a_pipeline(tmp_path):
    model, processor = mcan.tiny_model(vision_config=mcan.VISION, visual_feature_size=None), mcan.tiny_processor(True)
    save_model(model, processor, tmp_path)
    asked = {"image": PHOTOS[0], "question": "Is there a ball?"}
    expected = hf_ngsan.QuestionAnsweringPipeline(model=model, processor=processor)(asked)
    for pipe in (
        pipeline("visual-question-answering", model=str(tmp_path)),
        pipeline("visual-question-answering", model=model, processor=processor),
    ):
        assert type(pipe) is hf_ngsan.QuestionAnsweringPipeline
        for answers in (pipe(asked), pipe(image=PHOTOS[0], question="Is there a ball?")):
            assert answers == [{**answer, "score": pytest.approx(answer["score"])} for answer in expected]


def test_registering_again_changes_nothing():
    registry.register()
    function, tasks = pipelines._resolve_deprecated_task, dict(pipelines.PIPELINE_REGISTRY.supported_tasks)
    registry.register()
    assert pipelines._resolve_deprecated_task is function and pipelines.PIPELINE_REGISTRY.supported_tasks == tasks
    assert "question-answering" not in pipelines.get_supported_tasks()


def test_only_the_command_line_registers_later(monkeypatch):
    """A process that a command starts has the command's `sys.argv`, and may request anything."""
    spawned = ["python", "-c", "from multiprocessing.spawn import spawn_main; spawn_main()", "--multiprocessing-fork"]
    for started, argv, expected in (
        (["python", "/bin/hf-ngsan", "caption", "a.jpg"], ["/bin/hf-ngsan", "caption", "a.jpg"], True),
        (["python", "-X", "importtime", "-m", "hf_ngsan.cli", "models"], ["-m", "models"], True),
        (spawned, ["/bin/hf-ngsan", "caption", "a.jpg"], False),
        (spawned, ["/bin/hf-ngsan", *"abcdefg"], False),
        (["python", "train.py", "hf-ngsan"], ["train.py", "hf-ngsan"], False),
        (["python", "-m", "mine.train", "hf_ngsan.cli"], ["-m", "hf_ngsan.cli"], False),
        (["python"], [""], False),
    ):
        monkeypatch.setattr("sys.orig_argv", started)
        monkeypatch.setattr("sys.argv", argv)
        assert registry.is_command_line() is expected, started
