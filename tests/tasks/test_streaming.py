"""Training on streamed images: the trained images, and kill -9 within an epoch, on one process or two."""

from hf_ngsan.data import load_data, shuffle_buffer_of
from hf_ngsan.tasks import train
from tests.data.images.photos import write_parquet
from tests.tasks.test_pixels import pixel_config


def write_photographs(folder):
    """Writes the images and captions of synthetic scenes as Parquet; returns the folder."""
    for split, number in (("train", 30), ("validation", 4)):
        rows = load_data(f"scenes:size={number},validation={number},images=true,image_size=32", split)
        rows = rows.with_format(None).select_columns(["image_id", "image", "captions"])
        write_parquet(rows, folder / f"{split}-00000-of-00001.parquet")
    return folder


def test_captions_are_weighted_and_images_shuffled_in_windows(tmp_path):
    spec = f"images:{write_photographs(tmp_path / 'photos')},streaming=true,shuffle_buffer=7"
    assert shuffle_buffer_of(load_data(spec, "train")) == 7
    config = pixel_config(tmp_path / "run", data={"spec": spec}, training={"epochs": 1, "consensus_power": 1.0})
    assert len(train(config).history) == 1
