"""Regions of detection models: their features, classes and scores, also with grid cells."""

import numpy as np
import pytest
import torch
from transformers import (
    DetrConfig,
    DetrForObjectDetection,
    DFineConfig,
    DFineForObjectDetection,
    RTDetrConfig,
    RTDetrForObjectDetection,
    RTDetrImageProcessor,
)

from hf_ngsan.extraction import load_vision
from hf_ngsan.models.modeling_vision import region_features
from hf_ngsan.tasks.captioning_models import attach_vision
from tests.extraction.test_vision import DETECTOR, RESNET
from tests.extraction.tiny import extract, rows_of, write_photos
from tests.models.tiny import tiny_captioner, tiny_processor

DETR = {
    "d_model": 8,
    "num_queries": 6,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "encoder_ffn_dim": 8,
    "decoder_ffn_dim": 8,
    "encoder_attention_heads": 2,
    "decoder_attention_heads": 2,
    "num_labels": 3,
    "use_timm_backbone": False,
    "backbone": None,
    "backbone_config": {"model_type": "resnet", **RESNET, "hidden_sizes": [4, 4, 4, 8], "depths": [1] * 4},
}
KINDS = {
    "rt_detr": (RTDetrForObjectDetection, RTDetrConfig, DETECTOR),
    "d_fine": (DFineForObjectDetection, DFineConfig, {**DETECTOR, "decoder_layers": 2}),
    "detr": (DetrForObjectDetection, DetrConfig, DETR),
}


@pytest.fixture(scope="module")
def detectors(tmp_path_factory):
    folder = tmp_path_factory.mktemp("detectors")
    for name, (model_class, config_class, fields) in KINDS.items():
        torch.manual_seed(0)
        model_class(config_class(**fields)).save_pretrained(folder / name)
        RTDetrImageProcessor(size={"height": 64, "width": 64}).save_pretrained(folder / name)
    return folder


def test_regions_of_every_detector_are_its_best_queries_with_class_and_score(detectors, tmp_path):
    photos = write_photos(tmp_path / "photos", 3)
    for name, (model_class, _, _) in KINDS.items():
        vision, processor = load_vision(detectors / name, num_regions=4)
        extract(photos, tmp_path / name, model=vision, processor=processor)
        detector = model_class.from_pretrained(detectors / name).eval()
        for row in rows_of(tmp_path / name):
            pixels = processor(f"{photos}/{row['file_name']}", return_tensors="pt")["pixel_values"]
            with torch.inference_mode():
                actual = detector(pixels)
            logits = actual.logits[0]
            scores = logits.softmax(-1)[:, :-1] if name == "detr" else logits.sigmoid()
            best = scores.max(-1).values.sort(descending=True, stable=True)
            chosen = best.indices[:4]
            assert row["object_scores"] == pytest.approx(best.values[:4].tolist(), abs=1e-5), name
            assert row["objects"] == [f"LABEL_{scores[query].argmax()}" for query in chosen], name
            centre, size = actual.pred_boxes[0, chosen].split(2, dim=-1)
            corners = torch.cat([centre - size / 2, centre + size / 2], dim=-1).clamp(0, 1)
            np.testing.assert_allclose(row["visual_boxes"], corners, atol=1e-5)
            np.testing.assert_allclose(row["visual_features"], actual.last_hidden_state[0, chosen], atol=1e-2)


def test_pooled_features_are_means_of_the_finest_map_and_cells_follow_regions(detectors):
    pixels = torch.rand(2, 3, 64, 64, generator=torch.Generator().manual_seed(1))
    for name, (model_class, _, _) in KINDS.items():
        if name == "detr":
            pixels = pixels.repeat(1, 1, 1, 2)  # 2 x 4 cells
        queries, _ = load_vision(detectors / name, num_regions=3)
        both, _ = load_vision(detectors / name, num_regions=3, region_features="pooled", grid_size=[2, 2])
        with torch.inference_mode():
            regions, tokens = queries(pixels, output_detections=True), both(pixels, output_detections=True)
            states = model_class.from_pretrained(detectors / name).eval()(pixels).encoder_last_hidden_state
        finest = states.mT.unflatten(-1, (2, 4)) if name == "detr" else states[0]
        expected = region_features(finest, regions.visual_boxes)
        torch.testing.assert_close(tokens.visual_features[:, :3], expected)
        torch.testing.assert_close(tokens.visual_boxes[:, :3], regions.visual_boxes)
        cells = torch.nn.functional.adaptive_avg_pool2d(finest, (2, 2)).flatten(2).mT
        torch.testing.assert_close(tokens.visual_features[:, 3:], cells)
        assert tokens.visual_boxes[0, 3:].tolist() == [
            [0, 0, 0.5, 0.5],
            [0.5, 0, 1, 0.5],
            [0, 0.5, 0.5, 1],
            [0.5, 0.5, 1, 1],
        ]
        assert tokens.classes[:, 3:].tolist() == [[-1] * 4] * 2


def test_a_captioner_of_regions_and_cells_captions_photographs_as_their_features(detectors, tmp_path):
    photos = write_photos(tmp_path / "photos", 3)
    fields = {"num_regions": 3, "region_features": "pooled", "grid_size": [2, 2]}
    vision, processor = load_vision(detectors / "rt_detr", **fields)
    extract(photos, tmp_path / "features", model=vision, processor=processor, dtype="float32")
    captioner = tiny_captioner(visual_feature_size=8)
    captioner.save_pretrained(tmp_path / "captioner")
    tiny_processor().save_pretrained(tmp_path / "captioner")
    full, whole_processor = attach_vision(tmp_path / "captioner", detectors / "rt_detr", **fields)
    for row in rows_of(tmp_path / "features"):
        features = {name: torch.tensor(row[name])[None] for name in ("visual_features", "visual_boxes")}
        expected = captioner.generate(**features, num_beams=2, max_new_tokens=8)
        inputs = whole_processor(images=[f"{photos}/{row['file_name']}"])
        assert full.generate(**inputs, num_beams=2, max_new_tokens=8).tolist() == expected.tolist()
