"""A writer that replaces a folder or file is killed at a file operation: readers find the old or the new content."""

import json
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from hf_ngsan.io import folders
from hf_ngsan.io.files import write_text_atomically
from hf_ngsan.io.folders import check_folder, find_folder, replace_folder_contents, write_folder_atomically
from hf_ngsan.retrieval import IndexFolder, search
from hf_ngsan.training.output_folder import Checkpoints
from tests.dying import DIED, in_process, workers

pytestmark = pytest.mark.timeout(3600)

PRELOADED = ["tests.io.test_kills", "hf_ngsan.tasks.retrieval_search", "hf_ngsan.extraction"]
PRELOADED += ["tests.models.mhsan.tiny", "tests.models.tiny_photos"]


class User(NamedTuple):
    """A writer that replaces a file or folder.

    Attributes:
        begin: creates the old content.
        work: replaces it by the same new content in every call.
        read: returns the content that a reader finds, or raises an error.
    """

    begin: Callable[[Path], object]
    work: Callable[[Path], object]
    read: Callable[[Path], Any]


def write(*names: str, text: str) -> Callable[[Path], None]:
    def fill(folder: Path) -> None:
        for name in names:
            (folder / name).write_text(f"{name}: {text}")

    return fill


def contents(folder: Path) -> dict[str, str]:
    return {
        item.relative_to(folder).as_posix(): item.read_text() for item in sorted(folder.rglob("*")) if item.is_file()
    }


def contents_of_whole(folder: Path) -> dict[str, str]:
    place = find_folder(folder / "target")
    check_folder(place)
    return contents(place)


def begin_model(folder: Path) -> None:
    (folder / "target" / "examples").mkdir(parents=True)
    write("config.json", "a.safetensors", "b.safetensors", text="old")(folder / "target")
    (folder / "target" / "examples" / "config.json").write_text("mine")
    (folder / "target" / "evaluations.json").write_text("of before")


def renew_weights(folder: Path) -> None:
    """As in training: one file differs."""

    def fill(new: Path) -> None:
        write("config.json", "b.safetensors", text="old")(new)
        write("a.safetensors", text="new")(new)

    replace_folder_contents(folder / "target", fill)


def renew_everything(folder: Path) -> None:
    replace_folder_contents(folder / "target", write("config.json", "a.safetensors", "b.safetensors", text="new"))


def save_checkpoint(folder: Path, text: str) -> None:
    checkpoints = Checkpoints(folder / "checkpoints", keep=4)
    if (folder / "checkpoints").exists():
        folders.remove_leftovers(folder / "checkpoints")
    checkpoints.save(5, write("model.safetensors", "progress.json", text=text))


def begin_checkpoints(folder: Path) -> None:
    for step in range(2, 5):
        Checkpoints(folder / "checkpoints").save(step, write("model.safetensors", "progress.json", text="earlier"))
    save_checkpoint(folder, "old")


def read_checkpoints(folder: Path) -> list[dict[str, str]]:
    actual = Checkpoints(folder / "checkpoints").all()
    for item in actual:
        check_folder(item)
    return [contents(item) for item in actual[-2:]]


def index_photos(folder: Path) -> None:
    from hf_ngsan.extraction import list_images
    from hf_ngsan.tasks.retrieval_search import index_images
    from tests.models.mhsan.tiny import VISION, tiny_model, tiny_processor

    model, processor = tiny_model(vision_config=VISION), tiny_processor(pixels=True)
    images = list_images(folder / "photos")
    options = {"name": "m", "num_workers": 0, "images_per_shard": 4}
    index_images(model, processor, images, folder / "index", **options)


def begin_photos(folder: Path) -> None:
    from tests.models.tiny_photos import PHOTOS

    (folder / "photos").mkdir()
    for number, photo in enumerate(PHOTOS[:2]):
        photo.save(folder / "photos" / f"{number}.png")
    assert in_process(partial(act, index_photos, folder, True), folder) == 0  # with torch, a fork would hang in it
    PHOTOS[3].save(folder / "photos" / "0.png")
    PHOTOS[4].save(folder / "photos" / "2.png")


def read_photos(folder: Path) -> list:
    index = IndexFolder.open(folder / "index")
    places = index.all_places()
    hits = [(name, round(score, 2)) for score, name, *_ in search(index, index.embeddings_at(places[:1]), 9)[0]]
    return [*index.items(), index.embeddings_at(places).round(2).tolist(), index.thumbnails_at(places), hits]


def write_file(folder: Path, text: str) -> None:
    write_text_atomically(folder / "record.json", text)


USERS = {
    "a new folder": User(lambda folder: None, lambda folder: write_whole(folder, "new"), lambda f: contents_or_none(f)),
    "a folder": User(lambda f: write_whole(f, "old"), lambda folder: write_whole(folder, "new"), contents_of_whole),
    "weights": User(begin_model, renew_weights, lambda folder: contents(find_folder(folder / "target"))),
    "a model": User(begin_model, renew_everything, lambda folder: contents(find_folder(folder / "target"))),
    "checkpoints": User(begin_checkpoints, partial(save_checkpoint, text="new"), read_checkpoints),
    "a growing index": User(begin_photos, index_photos, read_photos),
    "a file": User(
        partial(write_file, text="old"), partial(write_file, text="new"), lambda f: (f / "record.json").read_text()
    ),
}


def write_whole(folder: Path, text: str) -> None:
    write_folder_atomically(folder / "target", write("a.txt", "b.txt", text=text))


def contents_or_none(folder: Path) -> dict[str, str]:
    return contents_of_whole(folder) if find_folder(folder / "target").exists() else {}


def act(work: Callable[[Path], object], folder: Path, exchanges: bool) -> int:
    if not exchanges:
        folders.exchange = lambda *paths: False
    work(folder)
    return 0


def kill_at(name: str, place: Path, exchanges: bool, once: bool) -> tuple[int, list[str]]:
    """Kills a writer at each of its operations, or once in the middle.

    Returns:
        The number of operations, and the problems of readers after kills.
    """
    user, problems = USERS[name], []

    def begun(folder: Path) -> tuple[Path, Callable[[], int]]:
        folder.mkdir()
        user.begin(folder)
        return folder, partial(act, user.work, folder, exchanges)

    folder, work = begun(place / "straight")
    old = user.read(folder)
    assert in_process(work, folder, record=place / "operations.json") == 0, (place / "straight.log").read_text()
    new = user.read(folder)
    assert old != new
    operations = json.loads((place / "operations.json").read_text())
    for number, operation in enumerate(operations, 1):
        if once and number != len(operations) // 2:
            continue
        folder, work = begun(place / str(number))
        code = in_process(work, folder, fatal=number)
        try:
            actual = user.read(folder)
        except Exception as error:
            actual = repr(error)
        again = in_process(work, folder)
        left = [path.name for path in folder.rglob(".*") if path.name.startswith((".incomplete-", ".replaced-"))]
        left = [item for item in left if not item.endswith("-lock")]
        if code != DIED or actual not in (old, new) or again or user.read(folder) != new or left:
            log = folder.with_suffix(".log").read_text()[-500:]
            problems.append(f"{number} ({operation}): {code}, {actual}, {again}, {left}; {log}")
        shutil.rmtree(folder)
    return len(operations), problems


@pytest.fixture(scope="module")
def pool():
    with workers(*PRELOADED) as pool:
        yield pool


def check(pool, tmp_path: Path, name: str, exchanges: bool, once: bool) -> None:
    number, problems = pool.submit(kill_at, name, tmp_path, exchanges, once).result()
    assert number >= 5 and not problems, "\n".join(problems)


@pytest.mark.slow
@pytest.mark.parametrize("name", USERS)
def test_a_reader_finds_the_old_or_the_new_when_the_writer_is_killed_half_way(pool, tmp_path, name):
    check(pool, tmp_path, name, exchanges=True, once=True)


@pytest.mark.nightly
@pytest.mark.parametrize("exchanges", [True, False])
@pytest.mark.parametrize("name", USERS)
def test_a_reader_finds_the_old_or_the_new_wherever_the_writer_is_killed(pool, tmp_path, name, exchanges):
    check(pool, tmp_path, name, exchanges, once=False)
