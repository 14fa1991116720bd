"""Several at once: threads that share a model, a reader while something is replaced, two writers of one place."""

import shutil
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from transformers import PreTrainedModel

from hf_ngsan.cli import main
from hf_ngsan.guests import dual_encoder_of
from hf_ngsan.loading.models import load_captioner, load_model
from hf_ngsan.loading.pipelines import CaptioningPipeline
from hf_ngsan.retrieval.index_folder import IndexFolder
from hf_ngsan.tasks.retrieval_search import search_images
from tests.guests.tiny import photos, save_all

pytestmark = pytest.mark.slow

THREADS = 4


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_all(tmp_path_factory.mktemp("models"), "blip", "clip")


@pytest.fixture
def pictures(tmp_path: Path) -> list[Path]:
    (tmp_path / "pictures").mkdir()
    files = []
    for number in range(12):
        files.append(tmp_path / "pictures" / f"{number:02}.png")
        photos(1, number)[0].save(files[-1])
    return files


def test_threads_that_share_a_model_get_the_outputs_of_one(models, pictures):
    model, processor = load_captioner(models / "blip")
    pipeline = CaptioningPipeline(model=model, processor=processor)
    encoder = dual_encoder_of(*load_model(models / "clip", "retrieval"))

    def outputs(file: Path) -> tuple:
        embedding = encoder.embed_images(encoder.image_inputs([str(file)])).detach()
        return pipeline(str(file), num_beams=2, max_new_tokens=6), embedding.tolist()

    expected = [outputs(file) for file in pictures]
    with ThreadPoolExecutor(THREADS) as pool:
        assert list(pool.map(outputs, pictures * 2)) == expected * 2


def test_threads_that_load_models_leave_transformers_as_it_was(models):
    before = PreTrainedModel.tie_weights, PreTrainedModel._initialize_weights, torch.nn.init.normal_
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(lambda name: load_model(models / name), ["blip", "clip"] * 6))
    assert (PreTrainedModel.tie_weights, PreTrainedModel._initialize_weights, torch.nn.init.normal_) == before


def test_a_reader_finds_the_old_index_or_the_new_one_while_it_grows(models, pictures, tmp_path):
    model, processor = load_model(models / "clip", "retrieval")
    folder, index = tmp_path / "some", tmp_path / "index"
    folder.mkdir()
    for file in pictures[:3]:
        shutil.copy(file, folder)
    command = ["index", "--model", str(models / "clip"), "--images", str(folder), "--output", str(index)]
    assert main(command) == 0
    sizes, errors, done = set(), [], threading.Event()

    def read() -> None:
        while not done.is_set():
            try:
                hits = search_images(model, processor, IndexFolder.open(index), text="a red ball", top_k=50)
                sizes.add(len(hits))
            except Exception as error:
                errors.append(error)

    reader = threading.Thread(target=read)
    reader.start()
    try:
        for number in range(3, 12, 3):
            for file in pictures[number : number + 3]:
                shutil.copy(file, folder)
            assert main(command) == 0
    finally:
        done.set()
        reader.join()
    assert errors == []
    assert sizes <= {3, 6, 9, 12}
    assert len(search_images(model, processor, IndexFolder.open(index), text="a red ball", top_k=50)) == 12
