"""Vision encoders in ONNX Runtime against PyTorch, and the fallback to PyTorch."""

import logging
import math
from pathlib import Path

import pytest
import torch
from transformers import pipeline

from hf_ngsan import VisionConfig, VisionModel
from hf_ngsan.commands import arguments
from hf_ngsan.exporting import graphs
from hf_ngsan.loading import engines, use_engine
from hf_ngsan.loading.engines import ENGINES, BackboneInEngine
from hf_ngsan.models.image_processing_captioning import CaptioningImageProcessor
from tests.models.tiny import tiny_captioner, tiny_processor
from tests.models.tiny_photos import PHOTOS, pixel_captioner, pixel_processor
from tests.tables import each_row

SIZE = {"height": 32, "width": 32}
STAGES = {"hidden_sizes": [4, 8], "depths": [1, 1], "out_features": ["stage1", "stage2"]}
BACKBONE = {"model_type": "ngsan_vgg", **STAGES}


ASSETS = "huggingface_hub.constants.HF_ASSETS_CACHE"


@pytest.fixture(scope="module")
def assets(tmp_path_factory) -> Path:
    return tmp_path_factory.mktemp("assets")


@pytest.fixture(autouse=True)
def kept_graphs(assets, monkeypatch) -> None:
    """A cache that keeps the graphs of earlier tests: each is exported once."""
    monkeypatch.setattr(ASSETS, str(assets))


def tiny_vision(seed: int = 0) -> VisionModel:
    torch.manual_seed(seed)
    return VisionModel(VisionConfig(backbone_config=BACKBONE, grid_size=[3, 3], frozen=False)).eval()


def processor() -> CaptioningImageProcessor:
    return CaptioningImageProcessor(size=SIZE)


@pytest.fixture
def runs(monkeypatch) -> list[int]:
    """The numbers of images that graphs encode."""
    actual: list[int] = []
    original = BackboneInEngine.maps

    def maps(self, pixels):
        actual.append(len(pixels))
        return original(self, pixels)

    monkeypatch.setattr(BackboneInEngine, "maps", maps)
    return actual


def test_the_engine_runs_what_it_can_and_pytorch_the_rest(runs):
    vision, pixels = tiny_vision(), torch.rand(2, 3, 32, 32)
    with torch.no_grad():
        expected = vision(pixels)
        use_engine(vision, processor(), "onnx")
        actual = vision(pixels)
        torch.testing.assert_close(actual.visual_features, expected.visual_features, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(actual.visual_boxes, expected.visual_boxes)
        assert sum(runs) == 3 and vision.backbone.forward.agrees is True  # one image was compared first
        for other in (
            {"pixel_values": torch.rand(1, 3, 40, 32)},
            {"pixel_values": pixels, "output_hidden_states": True},
        ):
            vision(**other)
    vision(pixels).visual_features.sum().backward()
    assert sum(runs) == 3
    assert all(weight.grad is not None for weight in vision.parameters())


@torch.inference_mode()
def test_a_graph_of_other_weights_is_not_used(runs, caplog):
    vision, pixels = tiny_vision(), torch.rand(2, 3, 32, 32)
    use_engine(vision, processor(), "onnx")
    other = tiny_vision()
    for weight in [*vision.parameters(), *other.parameters()]:
        weight.mul_(1.5)
    expected = other(pixels)
    with caplog.at_level(logging.WARNING, "hf_ngsan"):
        for _ in range(2):
            torch.testing.assert_close(vision(pixels).visual_features, expected.visual_features)
    warnings = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert [record.name for record in warnings] == ["hf_ngsan.loading.engines"]
    assert runs == [1]


@pytest.mark.slow
def test_a_graph_is_exported_once_and_again_for_other_weights_and_sizes(tmp_path, monkeypatch):
    monkeypatch.setattr(ASSETS, str(tmp_path))
    written = []
    original = engines.write_graph
    monkeypatch.setattr(engines, "write_graph", lambda *args: written.append(args) or original(*args))
    for _ in range(2):
        use_engine(tiny_vision(), processor(), "onnx")
    assert len(written) == 1
    use_engine(tiny_vision(seed=1), processor(), "onnx")
    use_engine(tiny_vision(), CaptioningImageProcessor(size={"height": 40, "width": 32}), "onnx")
    assert len(written) == 3
    assert len([path for path in (tmp_path / "hf_ngsan" / "engines").iterdir() if path.is_dir()]) == 3


def test_one_output_of_nan_is_another_output():
    """For any of several feature maps."""
    backbone, pixels = tiny_vision().backbone, torch.zeros(1, 3, 32, 32)
    expected = [scale.detach().numpy() for scale in backbone(pixels).feature_maps]
    for number in range(3):
        maps = {place: scale * (math.nan if place == number else 1) for place, scale in enumerate(expected)}
        part = BackboneInEngine(backbone, lambda inputs, maps=maps: maps, (32, 32))
        with torch.no_grad():
            part.compare(pixels)
        assert part.agrees is (number == 2), number


CANNOT = {
    "no vision encoder": lambda: (tiny_captioner(), tiny_processor()),
    "size varies": lambda: (tiny_vision(), CaptioningImageProcessor(size={"shortest_edge": 32})),
    "other precision": lambda: (tiny_vision().to(torch.bfloat16), processor()),
}


@each_row("case", CANNOT)
def test_auto_leaves_to_pytorch_what_onnx_refuses(case):
    model, its_processor = CANNOT[case]()
    with pytest.raises(ValueError, match="--engine"):
        use_engine(model, its_processor, "onnx")
    use_engine(model, its_processor, "auto")
    for part in model.modules():
        assert "forward" not in vars(part)


def test_an_engine_that_is_not_there(monkeypatch):
    assert arguments.ENGINES == ENGINES
    monkeypatch.setattr(graphs, "PACKAGES", ("onnx_of_nobody",))
    vision = tiny_vision()
    for engine, words in (("onnx", "hf-ngsan"), ("tensorrt", "tensorrt")):
        with pytest.raises(ValueError, match=words):
            use_engine(vision, processor(), engine)
    use_engine(vision, processor(), "auto")
    assert "forward" not in vars(vision.backbone)


@pytest.mark.slow
def test_a_pipeline_takes_an_engine(tmp_path):
    for part in (pixel_captioner(), pixel_processor()):
        part.save_pretrained(tmp_path)
    for task in ("image-to-text", "image-text-to-text"):
        plain, fast = pipeline(task, model=str(tmp_path)), pipeline(task, model=str(tmp_path), engine="onnx")
        actual, target = fast(PHOTOS), plain(PHOTOS)
        assert [texts[0]["generated_text"] for texts in actual] == [texts[0]["generated_text"] for texts in target]
        assert fast.model.base_model.vision.backbone.forward.agrees
