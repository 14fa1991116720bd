"""Captioners of clips: from video files to features and captions, equal in a batch, padded and alone."""

import json

import numpy as np
import pytest
import torch
from transformers import pipeline

from hf_ngsan.data import load_data
from hf_ngsan.data.moving_scenes import draw_clip, make_clip
from hf_ngsan.extraction import list_images
from hf_ngsan.loading.models import load_captioner
from hf_ngsan.models.pipeline_image_to_text import ImageToTextPipeline
from hf_ngsan.tasks import CaptioningConfig, train
from hf_ngsan.tasks.captioning_models import attach_vision
from hf_ngsan.visualization import plot_frame_attention
from tests.commands.running import fails, prints
from tests.extraction.tiny import BACKBONE, extract, rows_of, tiny_processor, tiny_vision
from tests.models.test_videos import write_clip
from tests.tasks.tiny import EVALUATION, MODEL, TRAINING

pytest.importorskip("av")
FRAMES = {"kind": "frames", "backbone_config": BACKBONE, "grid_size": [2, 2]}


@pytest.fixture(scope="module")
def clips(tmp_path_factory):
    """A folder of videos of moving scenes with captions; one video is broken."""
    folder = tmp_path_factory.mktemp("clips")
    lines = ["file_name,caption"]
    for number, suffix in enumerate(("mp4", "webm", "gif", "mp4", "mov", "mp4")):
        clip = make_clip(7, 0, number)
        write_clip(folder / f"train_station {number}.{suffix}", 8, size=(32, 32), frames=draw_clip(clip, 8, 32))
        lines += [f"train_station {number}.{suffix},{caption}" for caption in clip.captions[:2]]
    (folder / "metadata.csv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A training run on moving scenes that includes the vision encoder."""
    folder = tmp_path_factory.mktemp("runs") / "clips"
    model = {**MODEL, "geometric_bias": [], "temporal_positions": True, "vision_config": {**FRAMES, "frozen": False}}
    del model["geometry_hidden_size"]
    data = {
        "spec": "moving_scenes:size=16,validation=4,num_frames=4,image_size=32",
        "min_word_count": 1,
        "image_size": 32,
    }
    sections = {
        "model": model,
        "data": {**data, "num_frames": 4},
        "training": {**TRAINING, "output_dir": str(folder)},
        "evaluation": {**EVALUATION, "metric": "actions"},
    }
    train(CaptioningConfig.from_dict(sections))
    return folder


def test_clips_have_the_captions_of_their_folder_and_any_name(clips):
    rows = load_data(f"videos:{clips}", "train")
    assert len(rows) == 6 and rows.features["video"].decode is False
    assert rows[0]["video"]["path"] == str(clips / "train_station 0.mp4")
    assert rows[3]["captions"] == make_clip(7, 0, 3).captions[:2]
    with pytest.raises(FileNotFoundError):
        load_data(f"videos:{clips / 'none'}", "train")


def test_a_clip_is_captioned_the_same_from_a_file_its_frames_and_in_a_padded_batch(run, clips):
    model, processor = load_captioner(str(run))
    assert processor.image_processor.num_frames == 4
    captioner = pipeline("image-to-text", model=model, processor=processor)
    files = sorted(map(str, clips.glob("*.*4")))
    alone = [captioner(file, max_new_tokens=8, return_scores=True)[0] for file in files]
    for batch_size in (1, 3):
        together = captioner(files, batch_size=batch_size, max_new_tokens=8, return_scores=True)
        assert [answer["generated_text"] for [answer] in together] == [answer["generated_text"] for answer in alone]
        scores = [answer["score"] for [answer] in together]
        assert scores == pytest.approx([answer["score"] for answer in alone], abs=1e-5)
    frames = processor.read_clip(files[0])
    assert len(frames) == 4
    arguments = [{"frames": frames}, {"video": files[0]}, {"frames": frames[:2]}]
    answers = captioner(arguments, batch_size=3, max_new_tokens=8, return_scores=True, return_attention=True)
    assert answers[0][0]["generated_text"] == answers[1][0]["generated_text"] == alone[0]["generated_text"]
    short = captioner({"frames": frames[:2]}, max_new_tokens=8, return_scores=True)[0]
    assert answers[2][0]["score"] == pytest.approx(short["score"], abs=1e-5)
    best = answers[0][0]
    assert best["attention"].shape == (len(best["words"]), 4)
    figure = plot_frame_attention(best["frames"], best["words"] or ["-"], np.ones((max(1, len(best["words"])), 4)))
    assert len(figure.axes) == 4 * max(1, len(best["words"]))


def test_the_pipeline_of_a_checkpoint_takes_clips_and_the_features_of_their_frames(run, clips):
    model, processor = load_captioner(str(run))
    file = str(clips / "train_station 0.mp4")
    with torch.inference_mode():
        [features] = model.base_model.vision(**processor.clips([file])).visual_features
    arguments = [file, {"video": file}, {"video": {"bytes": None, "path": file}}, {"visual_features": features}]
    captioner = ImageToTextPipeline(model, processor=processor)
    answers = [captioner(item, max_new_tokens=8, return_scores=True)[0] for item in arguments]
    assert len({answer["generated_text"] for answer in answers}) == 1
    assert [answer["score"] for answer in answers] == pytest.approx([answers[0]["score"]] * 4, abs=1e-5)


def test_the_command_captions_files_folders_and_datasets(run, clips, tmp_path, capsys):
    broken = tmp_path / "broken.mp4"
    broken.write_bytes((clips / "train_station 0.mp4").read_bytes()[:200])
    lines = prints(capsys, "caption", "--model", run, clips, "--save-attention", tmp_path / "maps").splitlines()
    assert len(lines) == 6 and all("train_station" in line for line in lines)
    from_data = prints(capsys, "caption", "--model", run, "--data", f"videos:{clips}", "--split", "train").splitlines()
    assert [line.split("\t")[1] for line in from_data] == [line.split("\t")[1] for line in lines]
    assert "broken.mp4" in fails(capsys, "caption", "--model", run, broken)
    record = json.loads(prints(capsys, "caption", "--model", run, clips / "train_station 0.mp4", "--json"))
    assert record["caption"] == lines[0].split("\t")[1]


def test_features_of_frames_are_captioned_as_the_clips_they_come_from(clips, tmp_path):
    """Features of clips, a captioner of these features, and the same captioner with the vision encoder attached."""
    vision = tiny_vision(kind="frames")
    vision.save_pretrained(tmp_path / "vision")
    processor = tiny_processor(num_frames=3)
    processor.save_pretrained(tmp_path / "vision")
    images = list_images(f"videos:{clips}", split="train")
    extract(images, tmp_path / "features", model=vision, processor=processor, split="train", dtype="float32")
    rows = rows_of(tmp_path / "features")
    assert all("visual_boxes" not in row and np.shape(row["visual_features"]) == (3, 32) for row in rows)
    model = {**MODEL, "geometric_bias": [], "temporal_positions": True}
    data = {"spec": f"features:{tmp_path / 'features'}", "min_word_count": 1, "validation_split": None}
    del model["geometry_hidden_size"]
    training = {**TRAINING, "output_dir": str(tmp_path / "run"), "epochs": 1}
    train(CaptioningConfig.from_dict({"model": model, "data": data, "training": training}))
    captioner, _ = load_captioner(str(tmp_path / "run"))
    full, whole_processor = attach_vision(tmp_path / "run", tmp_path / "vision")
    for row in rows:
        features = torch.tensor(row["visual_features"])[None]
        expected = captioner.generate(visual_features=features, num_beams=2, max_new_tokens=8)
        inputs = whole_processor(videos=[str(clips / row["file_name"])])
        assert full.generate(**inputs, num_beams=2, max_new_tokens=8).tolist() == expected.tolist()
