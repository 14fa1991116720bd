"""Training on streamed images: what is trained on, and kill -9 in the middle of an epoch, on one process or two."""

import json
import multiprocessing
import os
import signal
import socket
import zlib

import pytest
from safetensors.torch import load_file

from hf_ngsan.data import load_data, shuffle_buffer_of
from hf_ngsan.tasks import train
from hf_ngsan.training.loop import TrainingLoop
from tests.data.images.photos import write_parquet
from tests.tasks.test_pixels import BACKBONE, VISION, pixel_config
from tests.training.test_loop import NO_DROPOUT


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


def train_as(index, num_processes, port, config, fatal, seen):
    """Trains, or continues, as one of several processes; notes the images of each update, and dies before one."""
    multiprocessing.set_start_method("fork", force=True)  # processes that load rows would import everything again
    if num_processes > 1:
        os.environ |= {"RANK": str(index), "LOCAL_RANK": str(index), "WORLD_SIZE": str(num_processes)}
        os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    original = TrainingLoop.update

    def update(self, micro_batches):
        step = self.progress.step
        if step == fatal:
            os.kill(os.getpid(), signal.SIGKILL)
        images = [image for batch in micro_batches if batch.num_rows for image in batch.inputs["pixel_values"]]
        (seen / f"{step:02}-{index}").write_text(json.dumps([zlib.crc32(image.numpy().tobytes()) for image in images]))
        original(self, micro_batches)

    TrainingLoop.update = update
    train(config, resume=True)


def train_on(num_processes, config, fatal, seen):
    """Returns the images that each update has seen, in order."""
    seen.mkdir()
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])
    arguments = [(index, num_processes, port, config, fatal, seen) for index in range(num_processes)]
    processes = [context.Process(target=train_as, args=one) for one in arguments]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert (process.exitcode == 0) == (fatal is None)
    updates: dict[int, list[int]] = {}
    for file in sorted(seen.iterdir()):
        updates.setdefault(int(file.name[:2]), []).extend(json.loads(file.read_text()))
    return updates


@pytest.mark.slow
@pytest.mark.parametrize(("streaming", "num_workers"), [("true", 2), ("false", 0)])
def test_the_number_of_processes_may_change_within_an_epoch(streaming, num_workers, tmp_path):
    """Batches of 7 of 29 images, in two parts: the last batch leaves one of two processes nothing."""
    source = write_photographs(tmp_path / "photos")
    data = {"spec": f"images:{source},streaming={streaming},shuffle_buffer=7", "num_workers": num_workers, "limit": 29}
    training = {"batch_size": 7, "gradient_accumulation_steps": 2, "save_every_steps": 2, "adam_epsilon": 1e-4}
    model = {**NO_DROPOUT, "vision_config": {**VISION, "backbone_config": {**BACKBONE, "use_batch_norm": False}}}
    straight, elastic = (
        pixel_config(tmp_path / name, model, data=data, training=training) for name in ("straight", "elastic")
    )
    seen = train_on(1, straight, None, tmp_path / "seen")
    for epoch in (range(5), range(5, 10)):
        assert len({image for update in epoch for image in seen[update]}) == 29

    for number, fatal, updates in ((2, 3, range(3)), (1, 9, range(2, 9)), (2, None, range(8, 10))):
        found = train_on(number, elastic, fatal, tmp_path / f"seen-{fatal}")
        assert found == {update: seen[update] for update in updates}
    one, other = (load_file(tmp_path / name / "last" / "model.safetensors") for name in ("straight", "elastic"))
    assert max((one[name] - other[name]).abs().max().item() for name in one) < 1e-5
