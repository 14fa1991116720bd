"""Checkpoints with code: loaded, run and saved again by processes without this package."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from transformers import BertConfig, BertModel, pipeline

from hf_ngsan import NGSANConfig, NGSANForConditionalGeneration, NGSANProcessor, save_for_hub
from hf_ngsan.loading.hub import SELF_TEST
from hf_ngsan.loading.models import load_captioner
from hf_ngsan.loading.pipelines import CaptioningPipeline
from hf_ngsan.models.configuration_hub import REQUIREMENTS, require_versions
from hf_ngsan.models.image_processing_captioning import CaptioningImageProcessor
from tests.models.tiny import tiny_captioner, tiny_processor
from tests.models.tiny_photos import PHOTOS, pixel_captioner, pixel_processor
from tests.tables import each_row

REPOSITORY = Path(__file__).parents[2]
CODE = {
    *["attention.py", "captioning.py", "configuration_hub.py", "configuration_ngsan.py"],
    *["geometry.py", "modeling_base.py", "modeling_ngsan.py", "parts.py", "pipeline_image_to_text.py", "positions.py"],
    *["processing_captioning.py", "processing_ngsan.py"],
}
"""Files of a captioner of visual features."""
CODE_OF_VISION = {"configuration_vision.py", "modeling_vision.py"}
"""Files of a vision encoder, and only of the package's backbones."""


def run_python(code: str, folder: Path, **variables: str) -> subprocess.CompletedProcess:
    """Runs code in a new process, in another folder and with a separate cache of modules."""
    environment = {
        **os.environ,
        "HF_HOME": str(folder / "home"),
        "HF_MODULES_CACHE": str(folder / "modules"),
        "HF_HUB_OFFLINE": "1",
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(REPOSITORY),
        **variables,
    }
    command = [sys.executable, "-W", "error::UserWarning", "-c", code]
    return subprocess.run(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300
    )


def result_of(code: str, folder: Path, **variables: str) -> dict:
    """The JSON in the last line that code prints."""
    process = run_python(code, folder, **variables)
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout.splitlines()[-1])


def files_of(folder: Path) -> set[str]:
    """Names of the files that transformers writes, which include no record of a self-test."""
    return {path.name for path in folder.iterdir()} - {SELF_TEST}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory) -> Path:
    """A captioner saved with its code."""
    folder = tmp_path_factory.mktemp("hub") / "captioner"
    save_for_hub(tiny_captioner(), tiny_processor(), folder)
    return folder


def test_checkpoint_has_weights_words_and_code(checkpoint):
    weights = {"config.json", "generation_config.json", "model.safetensors", SELF_TEST}
    words = {"processor_config.json", "tokenizer.json", "tokenizer_config.json"}
    assert {path.name for path in checkpoint.iterdir()} == weights | words | CODE
    config = json.loads((checkpoint / "config.json").read_text())
    models, processors = {"AutoModel", "AutoModelForImageTextToText"}, {"AutoProcessor"}
    assert set(config["auto_map"]) == {"AutoConfig", *models, *processors}
    for task in ("image-to-text", "image-text-to-text"):
        assert config["custom_pipelines"][task]["impl"] == "pipeline_image_to_text.ImageToTextPipeline"
    for reference in config["auto_map"].values():
        file, name = reference.split(".")
        assert f"class {name}(" in (checkpoint / f"{file}.py").read_text()


def test_what_cannot_be_saved_is_refused_before_anything_is_written(tmp_path):
    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 1, "intermediate_size": 8}
    bert, ours = BertModel(BertConfig(vocab_size=9, **sizes)), tiny_captioner()
    for model, processor, name in (
        (bert, tiny_processor(), "BertModel"),
        (ours.model.encoder, tiny_processor(), "NGSANEncoder"),
        (ours, tiny_processor().tokenizer, "TokenizersBackend"),
    ):
        with pytest.raises(ValueError, match=name):
            save_for_hub(model, processor, tmp_path / "target")
    assert not (tmp_path / "target").exists()
    (tmp_path / "file").touch()
    with pytest.raises(FileExistsError, match="file"):
        save_for_hub(ours, tiny_processor(), tmp_path / "file")


@pytest.fixture(scope="module")
def checkpoint_with_vision(tmp_path_factory) -> Path:
    """A captioner of pixels saved with its code, and photos for it."""
    folder = tmp_path_factory.mktemp("hub") / "with_vision"
    save_for_hub(pixel_captioner(), pixel_processor(shortest_edge=24, longest_edge=40), folder)
    for index, image in enumerate(PHOTOS):
        image.save(folder / f"photo_{index}.png")
    return folder


RAW_PHOTOS_WITHOUT_THE_PACKAGE = """
import json, sys
sys.modules["hf_ngsan"] = None  # import hf_ngsan now raises ImportError
from transformers import AutoImageProcessor, pipeline

folder, target = {folder!r}, {target!r}
pipe = pipeline({task!r}, model=folder, trust_remote_code=True)
image_processor = AutoImageProcessor.from_pretrained(folder, trust_remote_code=True)
parts = [pipe, pipe.model, pipe.model.model.vision, pipe.processor, pipe.processor.image_processor, image_processor]
paths = [f"{photos}/photo_{{index}}.png" for index in range({count})]
pipe.save_pretrained(target)
try:
    pipeline({task!r}, model=folder, trust_remote_code=False)
    refused = False
except ValueError as error:
    refused = "trust_remote_code" in str(error)
print(json.dumps({{
    "refused": refused,
    "modules": sorted({{type(part).__module__.split(".")[0] for part in parts}}),
    "pixels": [float(read(paths[0])["pixel_values"][0].sum()) for read in (image_processor, parts[4])],
    "one": pipe(paths[0]),
    "many": pipe(paths, batch_size=2, num_workers=1),
    "streamed": [*pipe((path for path in paths), batch_size=3)],
    "scores": [answer["score"] for [answer] in pipe(paths, batch_size=2, num_beams=3, return_scores=True)],
}}))
"""


@pytest.mark.slow
def test_a_process_without_the_package_captions_raw_photos(checkpoint_with_vision, tmp_path):
    pipe = CaptioningPipeline(model=pixel_captioner(), processor=pixel_processor(shortest_edge=24, longest_edge=40))
    captions = pipe(PHOTOS)
    scores = [answer["score"] for [answer] in pipe(PHOTOS, num_beams=3, return_scores=True)]
    source = checkpoint_with_vision
    for copy, task in (("once", "image-to-text"), ("twice", "image-text-to-text")):
        target = tmp_path / copy
        code = RAW_PHOTOS_WITHOUT_THE_PACKAGE.replace("{photos}", str(checkpoint_with_vision)).format(
            folder=str(source), target=str(target), count=len(PHOTOS), task=task
        )
        result = result_of(code, tmp_path)
        assert len(set(result.pop("pixels"))) == 1
        assert result.pop("scores") == pytest.approx(scores, abs=1e-5)
        assert result == {
            "refused": True,
            "modules": ["transformers_modules"],
            "one": captions[0],
            "many": captions,
            "streamed": captions,
        }
        photos = {f"photo_{index}.png" for index in range(len(PHOTOS))}
        assert files_of(target) == files_of(checkpoint_with_vision) - photos
        source = target


@each_row("with_code", [True, False])
def test_a_pipeline_is_saved_whole(with_code, checkpoint_with_vision, tmp_path):
    source = checkpoint_with_vision
    if not with_code:
        source = tmp_path / "plain"
        pixel_captioner().save_pretrained(source)
        pixel_processor(shortest_edge=24, longest_edge=40).save_pretrained(source)
    made = pipeline("image-to-text", model=str(source))
    made.save_pretrained(tmp_path)
    assert any("auto_map" in file.read_text() for file in tmp_path.glob("*.json")) == with_code
    again = pipeline("image-text-to-text", model=str(tmp_path))
    assert type(again.processor) is NGSANProcessor and type(again.processor.image_processor) is CaptioningImageProcessor
    assert again(PHOTOS, batch_size=5) == made(PHOTOS, batch_size=5)


@pytest.mark.slow
@pytest.mark.parametrize("change", [None, "configuration"])
def test_with_the_package_a_checkpoint_keeps_its_code(checkpoint, change, tmp_path):
    """A changed configuration, as from a training config, keeps it too."""
    if change is None:
        model = NGSANForConditionalGeneration.from_pretrained(checkpoint)
        processor = NGSANProcessor.from_pretrained(checkpoint)
    else:
        model, processor = load_captioner(checkpoint, dropout=0.3)
    assert type(model) is NGSANForConditionalGeneration
    model.save_pretrained(tmp_path / "again")
    processor.save_pretrained(tmp_path / "again")
    assert model.is_remote_code() is False
    assert files_of(tmp_path / "again") == files_of(checkpoint)
    for file in ("config.json", "processor_config.json", "tokenizer_config.json"):
        before, after = (json.loads((folder / file).read_text()) for folder in (checkpoint, tmp_path / "again"))
        assert after["auto_map"] == before["auto_map"]
        assert after.get("custom_pipelines") == before.get("custom_pipelines")


@pytest.mark.slow
def test_a_vision_encoder_is_saved_with_code_with_or_without_an_image_processor(tmp_path):
    vision, image_processor = pixel_captioner().model.vision, CaptioningImageProcessor(size={"height": 16, "width": 24})
    for name, processor in (("with", image_processor), ("without", None)):
        save_for_hub(vision, processor, tmp_path / name)
        assert (tmp_path / name / "modeling_vision.py").is_file()
        assert (tmp_path / name / "image_processing_captioning.py").is_file() == (processor is not None)
        config = json.loads((tmp_path / name / "config.json").read_text())
        assert set(config["auto_map"]) == {"AutoConfig", "AutoModel", "AutoImageProcessor"}
        assert "custom_pipelines" not in config
    code = """
import json, sys
sys.modules["hf_ngsan"] = None
import torch
from transformers import AutoImageProcessor, AutoModel
vision = AutoModel.from_pretrained({folder!r}, trust_remote_code=True).eval()
read = AutoImageProcessor.from_pretrained({folder!r}, trust_remote_code=True)
pixels = read(torch.linspace(0, 1, 3 * 20 * 20).view(3, 20, 20), return_tensors="pt").pixel_values
print(json.dumps(vision(pixels).visual_features.flatten().tolist()))
""".format(folder=str(tmp_path / "with"))
    pixels = image_processor(torch.linspace(0, 1, 3 * 20 * 20).view(3, 20, 20), return_tensors="pt").pixel_values
    expected = vision(pixels).visual_features.flatten()
    torch.testing.assert_close(torch.tensor(result_of(code, tmp_path)), expected, rtol=1e-5, atol=1e-5)


def test_a_checkpoint_names_the_versions_that_it_is_made_for(checkpoint, tmp_path):
    described = json.loads((checkpoint / "config.json").read_text())
    assert described["requirements"] == REQUIREMENTS
    assert "requirements" not in tiny_captioner().config.to_dict()
    folder = tmp_path / "other"
    tiny_captioner().save_pretrained(folder)
    tiny_processor().save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps({**described, "requirements": {"torch": "==1.0"}}))
    for load in (NGSANConfig.from_pretrained, load_captioner):
        with pytest.raises(ImportError, match=r"torch==1\.0"):
            load(folder)


def test_an_installed_version_that_is_too_old_or_too_new(monkeypatch):
    for version in ("5.23.0", "6.0.0", "4.57.1"):
        monkeypatch.setattr("importlib.metadata.version", {"transformers": version, "torch": "2.13.0"}.__getitem__)
        with pytest.raises(ImportError, match=f"{REQUIREMENTS['transformers']}.*{version}"):
            require_versions(REQUIREMENTS)
