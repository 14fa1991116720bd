"""Workers of Ray write what one process writes, whatever dies; needs the extra `ray`."""

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from torch import nn

from hf_ngsan.extraction.extract import ChunkWriter
from hf_ngsan.extraction.plan import Chunk
from hf_ngsan.ground.ray_workers import RayError, RayWorkers
from hf_ngsan.loading.models import save_model
from hf_ngsan.store import shards
from tests.commands.running import fails, prints
from tests.extraction.tiny import extract, files_of, tiny_processor, tiny_vision, write_photos
from tests.models.mhsan.tiny import VISION, tiny_model
from tests.models.mhsan.tiny import tiny_processor as dual_encoder_processor
from tests.models.tiny_photos import PHOTOS, pixel_captioner, pixel_processor
from tests.tables import each_row
from tests.test_documents import blocks
from tests.test_journeys import start, succeed

ray = pytest.importorskip("ray", reason='Ray is not installed; pip install "hf-ngsan[ray]"')
Cluster = pytest.importorskip("ray.cluster_utils").Cluster
TWO = RayWorkers(number=2)
"""On the cluster of this process."""
PAGE = Path(__file__).parents[2] / "docs" / "scale.md"
PATIENCE = "RAY_gcs_server_port_wait_time_s", "90"
"""Ray waits for its server for 30 s otherwise, which is not always enough where other tests keep the machine busy."""


def attempt(start: Callable[[], Any]) -> Any:
    """Starts Ray, up to three times."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(*PATIENCE)
        for _ in range(2):
            try:
                return start()
            except RuntimeError:
                ray.shutdown()
        return start()


@pytest.fixture(scope="module")
def cluster():
    options = {"num_cpus": 2, "include_dashboard": False, "logging_level": "ERROR", "log_to_driver": False}
    attempt(partial(ray.init, "local", **options))
    yield
    ray.shutdown()


@pytest.fixture
def photos(tmp_path):
    folder = write_photos(tmp_path / "photos", 13)
    (folder / "000007.png").write_bytes(b"")
    return folder


def note(folder: Path, item: int) -> None:
    """Does an item; the process dies the first time that it meets item 3."""
    died = folder / "died"
    if item == 3 and not died.exists():
        died.touch()
        os.kill(os.getpid(), signal.SIGKILL)
    (folder / f"{item}.done").write_text(str(os.getpid()))


def note_slowly(folder: Path, item: int) -> None:
    time.sleep(0.5)
    (folder / f"{item}.done").write_text(str(os.getpid()))


def die(item: int) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def refuse(item: int) -> None:
    raise ValueError(f"item {item} is wrong")


@pytest.mark.usefixtures("cluster")
@pytest.mark.slow
def test_items_of_a_worker_that_died_are_done_by_another(tmp_path):
    done = list(TWO.share(nn.Linear(1, 1), partial(note, tmp_path), range(8)))
    assert sorted(done) == list(range(8))
    assert {file.name for file in tmp_path.glob("*.done")} == {f"{item}.done" for item in range(8)}


@pytest.mark.usefixtures("cluster")
@pytest.mark.slow
def test_an_error_of_the_work_is_raised_as_it_is():
    with pytest.raises(ValueError, match="is wrong"):
        list(TWO.share(nn.Linear(1, 1), refuse, range(3)))


@pytest.mark.usefixtures("cluster")
@pytest.mark.slow
def test_an_item_that_kills_every_worker_is_given_up():
    with pytest.raises(RayError):
        list(TWO.share(nn.Linear(1, 1), die, range(1)))


@pytest.mark.usefixtures("cluster")
@pytest.mark.slow
def test_what_a_cluster_cannot_do_is_refused(photos, tmp_path, capsys):
    with pytest.raises(RayError):
        list(RayWorkers(gpus_per_worker=1).share(nn.Linear(1, 1), refuse, range(3)))
    with pytest.raises(RayError):
        list(TWO.share(nn.Linear(1, 1), refuse, range(3), processors=64))
    assert list(TWO.share(nn.Linear(1, 1), refuse, [])) == []
    save_model(pixel_captioner(), pixel_processor(), tmp_path / "model")
    words = ["caption", photos, "--model", tmp_path / "model", "--output", tmp_path / "captions", "--engine", "ray"]
    assert "GPU" in fails(capsys, *words, "--gpus-per-worker", 1)
    assert not (tmp_path / "captions").exists()


@pytest.mark.usefixtures("cluster")
@pytest.mark.slow
def test_features_are_those_of_one_process_also_resumed_by_other_workers(photos, tmp_path):
    extract(photos, tmp_path / "one", split="test")
    result = extract(photos, tmp_path / "ray", split="test", ray=TWO)
    assert (result.num_rows, len(result.skipped)) == (12, 1)
    expected = files_of(tmp_path / "one")
    assert files_of(tmp_path / "ray") == expected
    for file in ("state.json", "shard-000-000001.arrow"):
        (tmp_path / "ray" / file).unlink()
    extract(photos, tmp_path / "ray", split="test", ray=RayWorkers(number=1))
    assert files_of(tmp_path / "ray") == expected


@pytest.mark.usefixtures("cluster")
@pytest.mark.slow
def test_an_index_is_that_of_one_process(photos, tmp_path, capsys):
    save_model(tiny_model(vision_config=VISION), dual_encoder_processor(pixels=True), tmp_path / "model")
    options = ["--model", tmp_path / "model", "--images", photos, "--num-workers", 0, "--images-per-shard", 4]
    options += ["--batch-size", 2]
    prints(capsys, "index", *options, "--output", tmp_path / "one.index")
    said = prints(capsys, "index", *options[:4], *options[6:], "--output", tmp_path / "ray.index", "--engine", "ray")
    assert "12 images, 1 skipped" in said
    one, other = (
        {file.name: file.read_bytes() for file in (tmp_path / f"{name}.index").rglob("*.npy")}
        for name in ("one", "ray")
    )
    assert one and one == other


@pytest.mark.usefixtures("cluster")
@pytest.mark.slow
def test_captions_are_those_of_one_process(photos, tmp_path, capsys, monkeypatch):
    save_model(pixel_captioner(), pixel_processor(), tmp_path / "model")
    monkeypatch.chdir(tmp_path)
    options = ["caption", "--model", tmp_path / "model", "photos", "--json", "--batch-size", 2, "--skip-errors"]
    on_ray = [*options, "--engine", "ray", "--workers", 2, "--output", "ray.jsonl"]
    prints(capsys, *options, "--output", tmp_path / "one.jsonl")
    prints(capsys, *on_ray)
    one, other = (
        [json.loads(line) for line in (tmp_path / f"{name}.jsonl").read_text().splitlines()] for name in ("one", "ray")
    )
    scores, others = ([record.pop("score", None) for record in records] for records in (one, other))
    assert scores == pytest.approx(others, abs=1e-5) and len(scores) == 13
    for record in (*one, *other):
        record["words"] = [word for word, _ in record.get("words", [])]
    assert one == other
    assert not (tmp_path / "ray.jsonl.parts").exists()
    without = [one for one in on_ray if one != "--skip-errors"]
    assert "000007.png" in fails(capsys, *without)


def write_until(number: int, writer: ChunkWriter, chunk: Chunk) -> None:
    """Writes a shard on a worker whose disk fails from the second shard on, once the rows are written."""

    def fail(path: Path) -> None:
        raise OSError(number, os.strerror(number), str(path))

    if chunk.number >= 1:
        shards.flush_to_disk = fail
    writer.write([chunk])


@pytest.mark.usefixtures("cluster")
@pytest.mark.slow
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EACCES])
def test_a_disk_that_fails_on_a_worker_is_one_sentence_and_the_work_resumes(
    number, photos, tmp_path, capsys, monkeypatch
):
    tiny_vision().save_pretrained(tmp_path / "vision")
    tiny_processor().save_pretrained(tmp_path / "vision")
    command = ["extract", "--images", photos, "--split", "test", "--backbone", tmp_path / "vision"]
    command += ["--batch-size", 2, "--images-per-shard", 4, "--num-workers", 0]
    on_ray = [*command, "--output", tmp_path / "ray", "--engine", "ray", "--workers", 2]
    with monkeypatch.context() as patch:
        patch.setattr(ChunkWriter, "write_one", property(lambda writer: partial(write_until, number, writer)))
        assert os.strerror(number) in fails(capsys, *on_ray)
    assert {file.stem for file in tmp_path.glob("ray/records/*")} <= {"shard-000-000000"}
    assert not (tmp_path / "ray" / "state.json").exists()
    prints(capsys, *on_ray)
    prints(capsys, *command, "--output", tmp_path / "one")
    assert files_of(tmp_path / "ray") == files_of(tmp_path / "one")


@pytest.mark.slow
def test_the_pipeline_of_the_page_captions_a_folder(tmp_path):
    (tmp_path / "photos").mkdir()
    for number, one in enumerate(PHOTOS):
        one.save(tmp_path / "photos" / f"{number}.png")
    (tmp_path / "photos" / "broken.png").write_bytes(b"no image")
    [code] = blocks(PAGE, "python")
    path = os.pathsep.join([str(PAGE.parents[1]), os.environ.get("PYTHONPATH", "")])
    environment = {**os.environ, "PYTHONPATH": path, **dict([PATIENCE])}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env=environment, check=True)
    rows = Dataset.from_parquet([str(file) for file in (tmp_path / "captions").glob("*.parquet")])
    assert {Path(path).name for path in rows["path"]} == {file.name for file in (tmp_path / "photos").iterdir()}
    assert [Path(row["path"]).name for row in rows if row["error"]] == ["broken.png"]
    assert all(row["caption"] for row in rows if not row["error"])


@pytest.mark.slow
def test_the_work_of_a_machine_that_is_lost_is_done_by_another(tmp_path):
    ray.shutdown()
    machines = attempt(partial(Cluster, initialize_head=True, head_node_args={"num_cpus": 1}))
    other = machines.add_node(num_cpus=1)
    try:
        ray.init(address=machines.address, logging_level="ERROR", log_to_driver=False)
        done = []
        for place in TWO.share(nn.Linear(1, 1), partial(note_slowly, tmp_path), range(12)):
            done.append(place)
            if len(done) == 4:
                machines.remove_node(other, allow_graceful=False)
        assert sorted(done) == list(range(12))
        assert len(list(tmp_path.glob("*.done"))) == 12
    finally:
        ray.shutdown()
        machines.shutdown()


@pytest.mark.slow
def test_the_same_command_on_a_new_cluster_resumes_after_the_head_is_lost(tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_gcs_rpc_server_reconnect_timeout_s", "5")  # how long a driver waits for a lost head
    write_photos(tmp_path / "photos", 80)
    tiny_vision().save_pretrained(tmp_path / "vision")
    tiny_processor().save_pretrained(tmp_path / "vision")
    command = ["-m", "hf_ngsan.cli", "extract", "--images", "photos", "--split", "test", "--backbone", "vision"]
    command += ["--batch-size", 1, "--images-per-shard", 1, "--num-workers", 0]
    on_ray = [*command, "--output", "ray", "--engine", "ray", "--workers", 2, "--address"]
    records = tmp_path / "ray" / "records"

    machines = attempt(partial(Cluster, initialize_head=True, head_node_args={"num_cpus": 2}))
    process = start(*on_ray, machines.address, cwd=tmp_path)
    try:
        while len(list(records.glob("shard-*.json"))) < 10:
            assert process.poll() is None
            time.sleep(0.02)
        machines.remove_node(machines.head_node, allow_graceful=False)
        assert process.wait(timeout=300) != 0
    finally:
        process.kill()
        machines.shutdown()
    done = {file.name: file.stat().st_mtime_ns for file in records.glob("shard-*.json")}
    assert 10 <= len(done) < 80

    machines = attempt(partial(Cluster, initialize_head=True, head_node_args={"num_cpus": 2}))
    try:
        succeed(*on_ray, machines.address, cwd=tmp_path)
    finally:
        machines.shutdown()
    assert all((records / name).stat().st_mtime_ns == written for name, written in done.items())
    succeed(*command, "--output", "one", cwd=tmp_path)
    assert files_of(tmp_path / "ray") == files_of(tmp_path / "one")


@pytest.mark.slow
@pytest.mark.parametrize("address", ["127.0.0.1:1", "ray://127.0.0.1:1", "ray://no.such.host.invalid", "127.0.0.1:x"])
def test_a_cluster_that_is_not_there_is_one_sentence(address, photos, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    save_model(pixel_captioner(), pixel_processor(), tmp_path / "model")
    words = ["caption", photos, "--model", tmp_path / "model", "--output", tmp_path / "captions", "--engine", "ray"]
    assert address in fails(capsys, *words, "--address", address)
    assert not (tmp_path / "captions").exists()


@each_row("command", ["caption", "extract", "index"])
def test_options_of_the_cluster_reach_it(command, photos, tmp_path, capsys, monkeypatch):
    used = []

    def share(self, model, do, items, processors=1):
        used.append(self)
        for place, item in enumerate(items):
            do(item)
            yield place

    monkeypatch.setattr(RayWorkers, "share", share)
    save_model(pixel_captioner(), pixel_processor(), tmp_path / "captioner")
    save_model(tiny_model(vision_config=VISION), dual_encoder_processor(pixels=True), tmp_path / "dual_encoder")
    arguments = {
        "caption": ["--model", tmp_path / "captioner", photos, "--skip-errors"],
        "extract": ["--backbone", tmp_path / "captioner", "--images", photos],
        "index": ["--model", tmp_path / "dual_encoder", "--images", photos],
    }
    options = ["--engine", "ray", "--address", "auto", "--workers", 3, "--gpus-per-worker", 0.5]
    prints(capsys, command, *arguments[command], *options, "--output", tmp_path / "output")
    assert used == [RayWorkers("auto", 3, 0.5)] and (tmp_path / "output").exists()


def test_a_command_says_that_ray_is_not_installed(photos, tmp_path, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    options = ["--engine", "ray", "--output", tmp_path / "output"]
    assert "hf-ngsan[ray]" in fails(capsys, "caption", photos, *options)
    assert "hf-ngsan[ray]" in fails(capsys, "index", "--images", photos, *options)
    assert not (tmp_path / "output").exists()


def test_options_that_do_not_go_with_ray(photos, tmp_path, capsys):
    command = ["extract", "--images", photos, "--backbone", "efficientnet-lite0", "--output", tmp_path / "features"]
    assert "--engine ray" in fails(capsys, *command, "--workers", 2)
    assert "--num-processes" in fails(capsys, *command, "--engine", "ray", "--num-processes", 2)
    assert "--output" in fails(capsys, "caption", photos, "--engine", "ray")
    options = ["--engine", "ray", "--output", tmp_path / "captions", "--save-attention", tmp_path / "maps"]
    assert "--save-attention" in fails(capsys, "caption", photos, *options)
    assert not (tmp_path / "features").exists()
