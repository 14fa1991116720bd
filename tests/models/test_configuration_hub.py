"""The code of a checkpoint: only that of its architecture and of the parts that its model has."""

import json
from pathlib import Path

import pytest
import torch

from hf_ngsan import CaptioningImageProcessor, VisionConfig, VisionModel, save_for_hub
from hf_ngsan.registry import MODEL_TYPES
from tests.drift.checkpoints import CHECKPOINTS, RESNEXT
from tests.loading.test_hub import CODE_OF_VISION, result_of
from tests.models.test_transformers_backbones import CLIP
from tests.tables import each_row

VGG = {"modeling_vgg.py"}
RESNEXT_CODE = {"modeling_resnext.py"}
EFFICIENTNET = {"modeling_efficientnet_lite.py"}
SOURCES = {"pretrained_weights.py", "transformers_backbones.py"}
TRANSFORMERS = {"transformers_backbones.py"}
DETECTION = {"transformers_backbones.py"}
VISION = CODE_OF_VISION
OPTIONAL = VGG | RESNEXT_CODE | EFFICIENTNET | SOURCES | TRANSFORMERS | DETECTION | VISION
NEEDED = {
    "ngsan_vision": VISION | VGG,
    "ngsan_vgg": VISION | VGG,
    "ngsan_resnext": VISION | RESNEXT_CODE,
    "ngsan_efficientnet_lite": VISION | EFFICIENTNET,
}
"""Architectures of the frozen checkpoints; the others have no vision encoder."""
BACKBONES = {
    "vgg": ({"model_type": "ngsan_vgg", "hidden_sizes": [4, 8], "depths": [1, 1]}, VGG),
    "resnext": ({"model_type": "ngsan_resnext", **RESNEXT}, RESNEXT_CODE),
    "efficientnet_lite": (
        {"model_type": "ngsan_efficientnet_lite", "embedding_size": 4, "hidden_sizes": [8], "depths": [1]},
        EFFICIENTNET,
    ),
    "clip": (CLIP, TRANSFORMERS),
    "of_transformers": (
        {"model_type": "resnet", "embedding_size": 4, "hidden_sizes": [4, 8], "depths": [1, 1]},
        TRANSFORMERS,
    ),
}
IMAGE_READING = {"image_processing_captioning.py", "images.py"}


def code_in(folder: Path) -> set[str]:
    return {file.name for file in folder.glob("*.py")}


def pixels() -> torch.Tensor:
    return torch.linspace(0, 1, 3 * 32 * 32).view(1, 3, 32, 32)


@each_row("model_type", MODEL_TYPES)
def test_a_checkpoint_has_no_code_of_a_part_that_its_model_lacks(model_type, tmp_path):
    model, processor, _ = CHECKPOINTS[model_type]()
    save_for_hub(model, processor, tmp_path)
    assert code_in(tmp_path) & OPTIONAL == NEEDED.get(model_type, set())


@pytest.fixture(scope="module")
def encoders(tmp_path_factory) -> Path:
    """A vision encoder with each backbone, with its code, and the features that it computes from the pixels."""
    folder = tmp_path_factory.mktemp("encoders")
    for name, (backbone, _) in BACKBONES.items():
        torch.manual_seed(0)
        vision = VisionModel(VisionConfig(backbone_config=backbone)).eval()
        save_for_hub(vision, CaptioningImageProcessor(), folder / name)
        with torch.no_grad():
            (folder / f"{name}.json").write_text(json.dumps(vision(pixels()).visual_features.flatten().tolist()))
    return folder


@each_row("name", BACKBONES)
def test_a_vision_encoder_has_the_code_of_its_own_backbone(name, encoders):
    shared = {"configuration_hub.py", "modeling_base.py", "parts.py"}
    assert code_in(encoders / name) == VISION | shared | IMAGE_READING | BACKBONES[name][1]


LOADED_WITHOUT_THE_PACKAGE = """
import json, sys
from pathlib import Path
sys.modules["hf_ngsan"] = None
import torch
from transformers import AutoModel

folder, target = Path({folder!r}), Path({target!r})
features, code = dict(), dict()
for name in {names!r}:
    vision = AutoModel.from_pretrained(folder / name, trust_remote_code=True).eval()
    with torch.no_grad():
        features[name] = vision({pixels}).visual_features.flatten().tolist()
    vision.save_pretrained(target / name)
    AutoModel.from_pretrained(target / name, trust_remote_code=True)
    code[name] = sorted(file.name for file in (target / name).glob("*.py"))
    try:
        type(vision.config)(backbone_config={other})
        other = None
    except ModuleNotFoundError as error:
        other = error.name
    code[name].append(other)
print(json.dumps([features, code]))
"""


@pytest.mark.slow
def test_a_process_without_the_package_loads_and_saves_every_backbone(encoders, tmp_path):
    code = LOADED_WITHOUT_THE_PACKAGE.format(
        folder=str(encoders),
        target=str(tmp_path / "again"),
        names=list(BACKBONES),
        pixels="torch.linspace(0, 1, 3 * 32 * 32).view(1, 3, 32, 32)",
        other=dict(BACKBONES["vgg"][0]),
    )
    features, saved = result_of(code, tmp_path)
    for name in BACKBONES:
        expected = torch.tensor(json.loads((encoders / f"{name}.json").read_text()))
        torch.testing.assert_close(torch.tensor(features[name]), expected, rtol=1e-5, atol=1e-5)
        *names, refused = saved[name]
        assert {*names} == code_in(encoders / name) - IMAGE_READING
        assert (refused is None) == (name == "vgg")
        assert refused is None or refused.endswith(".modeling_vgg")
        for file in names:
            assert (tmp_path / "again" / name / file).read_bytes() == (encoders / name / file).read_bytes()
