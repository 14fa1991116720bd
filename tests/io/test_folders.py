import errno
import os
import sys
from types import SimpleNamespace

import pytest

from hf_ngsan.extraction.extract import ExtractionError, FeatureFolder
from hf_ngsan.io import folders
from hf_ngsan.io.files import check_place, write_file_atomically, write_output, write_text_atomically
from hf_ngsan.io.folders import (
    MANIFEST,
    DamagedFolderError,
    check_folder,
    find_folder,
    remove_leftovers,
    replace_folder_contents,
    write_folder_atomically,
)
from tests.tables import each_row


def fill(folder):
    (folder / "a.txt").write_text("first")
    (folder / "b.bin").write_bytes(bytes(range(256)) * 10)


def fail_half_way(folder):
    (folder / "a.txt").write_text("first")
    raise RuntimeError("half way")


def test_what_fails_to_be_written_stays_as_it_was(tmp_path):
    path = tmp_path / "new" / "file.bin"
    write_file_atomically(path, lambda file: file.write(b"old"))
    with pytest.raises(ZeroDivisionError):
        write_file_atomically(path, lambda file: file.write(b"new") / 0)
    with pytest.raises(RuntimeError):
        write_folder_atomically(tmp_path / "done", fail_half_way)
    assert path.read_bytes() == b"old" and os.listdir(path.parent) == ["file.bin"]
    assert os.listdir(tmp_path) == ["new"]


def test_a_disk_that_is_full_is_named_where_the_error_has_no_number(tmp_path, monkeypatch):
    monkeypatch.setattr("shutil.disk_usage", lambda folder: SimpleNamespace(free=0))
    with pytest.raises(OSError, match="file") as error:
        write_file_atomically(tmp_path / "file", lambda file: [].pop())
    assert error.value.errno == errno.ENOSPC and not os.listdir(tmp_path)


def test_a_shard_of_another_node_must_be_there(tmp_path):
    with pytest.raises(ExtractionError, match="shard-000-000009"):
        FeatureFolder(tmp_path).make_dataset("", [], ["shard-000-000009"])


def test_several_processes_may_write_a_file_at_once(tmp_path):
    path = tmp_path / "file.bin"

    def write_while_another_writes(file):
        file.write(b"first")
        write_file_atomically(path, lambda other: other.write(b"second, of another length"))
        file.write(b" and last")

    write_file_atomically(path, write_while_another_writes)
    assert path.read_bytes() == b"first and last" and os.listdir(tmp_path) == ["file.bin"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="needs named pipes")
def test_a_pipe_is_written_to_and_stays_a_pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    write_file_atomically(tmp_path / "pipe", lambda file: file.write(b"first"))
    write_text_atomically(tmp_path / "pipe", " second")
    assert os.read(reader, 100) == b"first second"
    os.close(reader)
    assert (tmp_path / "pipe").is_fifo() and os.listdir(tmp_path) == ["pipe"]


@each_row("write", [write_text_atomically, write_output])
@each_row("is_there", [True, False])
def test_a_symbolic_link_is_followed_and_stays(tmp_path, write, is_there):
    for name in ("files", "links"):
        (tmp_path / name).mkdir()
    target, link = tmp_path / "files" / "target.json", tmp_path / "links" / "link.json"
    if is_there:
        target.write_text("old")
    link.symlink_to(os.path.join("..", "files", "target.json"))
    (tmp_path / "links" / "second.json").symlink_to("link.json")
    check_place(tmp_path / "links" / "second.json")
    write(tmp_path / "links" / "second.json", "new")
    assert target.read_text() == "new" and os.listdir(target.parent) == ["target.json"]
    assert os.readlink(link) == "../files/target.json" and os.readlink(link.with_name("second.json")) == "link.json"
    assert sorted(os.listdir(link.parent)) == ["link.json", "second.json"]


def test_a_folder_behind_a_link_is_replaced_and_the_link_stays(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to("folder")
    write_folder_atomically(tmp_path / "link", fill)
    check_folder(tmp_path / "folder")
    assert (tmp_path / "link").is_symlink() and sorted(os.listdir(tmp_path)) == ["folder", "link"]


@each_row(
    ("damage", "words"),
    [
        (lambda folder: (folder / "b.bin").write_bytes(b"short"), ["b.bin"]),
        (lambda folder: (folder / "b.bin").write_bytes(bytes(2560)), ["b.bin", "changed"]),
        (lambda folder: (folder / "b.bin").unlink(), ["b.bin", "missing"]),
        (lambda folder: (folder / MANIFEST).unlink(), ["incomplete", MANIFEST]),
        (lambda folder: (folder / MANIFEST).write_text("{"), [MANIFEST]),
        (lambda folder: (folder / MANIFEST).write_text('{"a.txt": 5}'), [MANIFEST]),
    ],
)
def test_damage_is_named(tmp_path, damage, words):
    write_folder_atomically(tmp_path / "done", fill)
    damage(tmp_path / "done")
    with pytest.raises(DamagedFolderError) as error:
        check_folder(tmp_path / "done")
    for word in ["done", *words]:
        assert word in str(error.value)


def test_sizes_tell_damage_without_reading(tmp_path):
    write_folder_atomically(tmp_path / "done", fill)
    (tmp_path / "done" / "b.bin").write_bytes(bytes(2560))
    check_folder(tmp_path / "done", read=["a.txt"])
    with pytest.raises(DamagedFolderError, match=r"b\.bin"):
        check_folder(tmp_path / "done", read=["b.bin"])
    with pytest.raises(DamagedFolderError, match=r"c\.txt"):
        check_folder(tmp_path / "done", ["c.txt"], read=[])


@pytest.fixture(params=["exchange", "two renames"])
def exchanges(request, monkeypatch):
    if request.param != "exchange":
        monkeypatch.setattr(folders, "exchange", lambda *paths: False)
    elif sys.platform == "linux":
        monkeypatch.setattr(folders, "replaced_path", lambda target: target.with_name("never"))


def test_files_of_a_folder_change_at_once_and_others_stay(tmp_path, exchanges):
    replace_folder_contents(tmp_path / "best", fill)
    (tmp_path / "best" / "a").mkdir()
    (tmp_path / "best" / "a" / "a.txt").write_text("mine")
    (tmp_path / "best" / "b.bin").write_text("kept")
    for _ in range(2):
        replace_folder_contents(tmp_path / "best", lambda folder: (folder / "a.txt").write_text("second"))
        actual = {path.relative_to(tmp_path).as_posix(): path.read_text() for path in tmp_path.rglob("*.*")}
        assert actual == {"best/a.txt": "second", "best/b.bin": "kept", "best/a/a.txt": "mine"}
        with pytest.raises(RuntimeError):
            replace_folder_contents(tmp_path / "best", fail_half_way)


@pytest.fixture
def between_the_renames(tmp_path):
    """The files of a writer that is killed after it has renamed the old folder."""
    write_folder_atomically(tmp_path / ".replaced-done", fill)
    (tmp_path / ".incomplete-done").mkdir()
    return tmp_path / "done"


def test_a_reader_finds_the_folder_that_lost_its_name_and_the_next_writer_gives_it_back(between_the_renames):
    check_folder(find_folder(between_the_renames))
    assert not between_the_renames.exists()
    assert find_folder(between_the_renames.with_name("other")) == between_the_renames.with_name("other")
    remove_leftovers(between_the_renames.parent)
    check_folder(between_the_renames)
    assert os.listdir(between_the_renames.parent) == ["done"]


def test_a_writer_that_fails_leaves_the_folder_that_lost_its_name(between_the_renames):
    with pytest.raises(RuntimeError):
        write_folder_atomically(between_the_renames, fail_half_way)
    check_folder(find_folder(between_the_renames))
    write_folder_atomically(between_the_renames, lambda folder: (folder / "c.txt").write_text("new"))
    assert find_folder(between_the_renames) == between_the_renames
    assert os.listdir(between_the_renames.parent) == ["done"]
