import os

import pytest

from hf_ngsan.files import (
    MANIFEST,
    DamagedFolderError,
    check_folder,
    remove_leftovers,
    replace_folder_contents,
    write_file_atomically,
    write_folder_atomically,
    write_text_atomically,
)


def fill(folder):
    (folder / "a.txt").write_text("first")
    (folder / "b.bin").write_bytes(bytes(range(256)) * 10)


class KilledError(BaseException):
    """Passes every `except Exception`, as the end of a process would."""


def fail_half_way(folder, error=RuntimeError):
    (folder / "a.txt").write_text("first")
    raise error("half way")


def kill_half_way(folder):
    fail_half_way(folder, KilledError)


def test_text_is_written_whole_into_new_folders(tmp_path):
    write_text_atomically(tmp_path / "new" / "file.txt", "grüße\n")
    write_text_atomically(tmp_path / "new" / "file.txt", "neu\n")
    assert (tmp_path / "new" / "file.txt").read_text(encoding="utf-8") == "neu\n"
    assert os.listdir(tmp_path / "new") == ["file.txt"]


def test_a_complete_folder_passes_its_check(tmp_path):
    write_folder_atomically(tmp_path / "done", fill)
    check_folder(tmp_path / "done")
    write_folder_atomically(tmp_path / "plain", fill, manifest=False)
    assert sorted(os.listdir(tmp_path / "plain")) == ["a.txt", "b.bin"]
    assert sorted(os.listdir(tmp_path)) == ["done", "plain"]


def test_a_failed_write_leaves_nothing(tmp_path):
    with pytest.raises(RuntimeError):
        write_folder_atomically(tmp_path / "done", fail_half_way)
    with pytest.raises(RuntimeError):
        replace_folder_contents(tmp_path / "done", fail_half_way)
    for write in (lambda file: file.write(b"half") / 0, lambda file: file.write("text")):
        with pytest.raises((TypeError, ZeroDivisionError)):
            write_file_atomically(tmp_path / "file", write)
    with pytest.raises(UnicodeEncodeError):
        write_text_atomically(tmp_path / "file.txt", "\ud800")
    assert os.listdir(tmp_path) == []


def test_a_file_that_fails_to_be_written_stays_as_it_was(tmp_path):
    path = tmp_path / "new" / "file.bin"
    write_file_atomically(path, lambda file: file.write(b"old"))
    with pytest.raises(ZeroDivisionError):
        write_file_atomically(path, lambda file: file.write(b"new") / 0)
    assert path.read_bytes() == b"old" and os.listdir(path.parent) == ["file.bin"]


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


def test_an_interrupted_write_shows_no_folder_and_its_rest_can_be_removed(tmp_path):
    with pytest.raises(KilledError):
        write_folder_atomically(tmp_path / "done", kill_half_way)
    assert not (tmp_path / "done").exists()
    assert len(os.listdir(tmp_path)) == 1
    remove_leftovers(tmp_path)
    assert os.listdir(tmp_path) == []
    write_folder_atomically(tmp_path / "done", fill)
    check_folder(tmp_path / "done")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda folder: (folder / "b.bin").write_bytes(b"short"), ["b.bin", "5 of 2560 bytes"]),
        (lambda folder: (folder / "b.bin").write_bytes(bytes(2560)), ["b.bin", "changed"]),
        (lambda folder: (folder / "b.bin").unlink(), ["b.bin", "missing"]),
        (lambda folder: (folder / MANIFEST).unlink(), ["incomplete", MANIFEST]),
        (lambda folder: (folder / MANIFEST).write_text("{"), ["damaged", MANIFEST]),
        (lambda folder: (folder / MANIFEST).write_text("[]"), ["damaged", MANIFEST]),
        (lambda folder: (folder / MANIFEST).write_text('{"a.txt": 5}'), ["damaged", MANIFEST]),
    ],
)
def test_damage_is_named(tmp_path, damage, words):
    write_folder_atomically(tmp_path / "done", fill)
    damage(tmp_path / "done")
    with pytest.raises(DamagedFolderError) as error:
        check_folder(tmp_path / "done")
    for word in ["done", *words]:
        assert word in str(error.value)


def test_a_file_in_the_place_of_a_folder_is_an_incomplete_one(tmp_path):
    (tmp_path / "step-1").write_text("no folder")
    with pytest.raises(DamagedFolderError, match="step-1 is incomplete"):
        check_folder(tmp_path / "step-1")


def test_renewing_a_folder_keeps_other_files_and_replaces_its_own(tmp_path):
    replace_folder_contents(tmp_path / "best", fill)
    (tmp_path / "best" / "notes.md").write_text("mine")
    replace_folder_contents(tmp_path / "best", lambda folder: (folder / "a.txt").write_text("second"))
    assert sorted(os.listdir(tmp_path / "best")) == ["a.txt", "b.bin", "notes.md"]
    assert (tmp_path / "best" / "a.txt").read_text() == "second"
    with pytest.raises(RuntimeError):
        replace_folder_contents(tmp_path / "best", fail_half_way)
    assert (tmp_path / "best" / "a.txt").read_text() == "second"
