"""Hostile files of features: reading them runs no code and writes no files.

`HF_NGSAN_FUZZ_SEED=7 pytest -m slow tests/fuzz/test_archives.py` uses another seed.
"""

import io
import os
import pickle
import random
import zipfile
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pytest
import torch

from hf_ngsan.cli import main

FILES = 60
RAN, ESCAPED = "RAN", "ESCAPED"
"""Files that a payload creates in the working folder, and that a name in an archive creates outside of its folder."""
NAMES = (f"../{ESCAPED}", f"/tmp/{ESCAPED}", f"a/../../{ESCAPED}", "1.npy")


class Payload:
    """Runs code when it is unpickled."""

    def __init__(self, call: Callable, argument: object) -> None:
        self.call, self.argument = call, argument

    def __reduce__(self) -> tuple:
        return self.call, (self.argument,)


def payload(draw: random.Random) -> object:
    code = f"open({RAN!r}, 'w').close()"
    harmful = Payload(*draw.choice([(os.system, f"touch {RAN}"), (exec, code), (eval, f"exec({code!r})"), (open, RAN)]))
    return draw.choice([harmful, {"features": harmful}, [np.ones(3), harmful], {"1": {"features": harmful}}])


def pickled(draw: random.Random, folder: Path) -> Path:
    """A pickle of any protocol under the name of any format."""
    path = folder / draw.choice(["1.pth", "1.pkl", "1.npy", "1.npz", "1.pt", "features.hdf5", "rows.parquet"])
    if draw.random() < 0.5:
        torch.save(payload(draw), path, _use_new_zipfile_serialization=draw.random() < 0.5)
    else:
        path.write_bytes(pickle.dumps(payload(draw), protocol=draw.randrange(6)))
    return path


def arrays(draw: random.Random, folder: Path) -> Path:
    """An .npy file with objects, alone or in an .npz."""
    file = io.BytesIO()
    np.save(file, np.array([payload(draw)], dtype=object), allow_pickle=True)
    content = file.getvalue()
    if draw.random() < 0.5:
        (folder / "1.npy").write_bytes(content)
        return folder / draw.choice(["1.npy", "."])
    with zipfile.ZipFile(folder / "1.npz", "w", draw.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])) as archive:
        for name in draw.sample(["x.npy", "bbox.npy", "info.npy", *NAMES], 3):
            archive.writestr(name, content)
    return folder / "1.npz"


def tables(draw: random.Random, folder: Path) -> Path:
    """An HDF5 file with links to others, or data in another file."""
    path = folder / "features.hdf5"
    with h5py.File(path, "w") as file:
        name = draw.choice(["1_features", "1_grids", "1", "features", "1_boxes"])
        deed = draw.randrange(3)
        if deed == 0:
            file[name] = h5py.ExternalLink("/etc/hostname", "x")
        elif deed == 1:
            file[name] = h5py.SoftLink(f"/{name}")
        else:
            file.create_dataset(name, (4, 8), "u1", external=[("/etc/passwd", 0, 32)])
    return path


@pytest.mark.slow
def test_prepared_files_run_and_reach_nothing(tmp_path, monkeypatch):
    seed = os.environ.get("HF_NGSAN_FUZZ_SEED", "1")
    outside = [tmp_path / ESCAPED, tmp_path.parent / ESCAPED, Path("/tmp", ESCAPED)]
    for number in range(FILES):
        draw = random.Random(f"{seed} {number}")
        folder = tmp_path / str(number)
        (folder / "given").mkdir(parents=True)
        monkeypatch.chdir(folder)
        path = draw.choice([pickled, pickled, arrays, arrays, tables])(draw, folder / "given")
        for command in (
            ["inspect", path],
            ["convert", path, "--output", "new"],
            ["references", "--data", f"images:{path.parent}", "--split", "train", "--output", "new.json"],
            ["references", "--data", f"features:{path.parent}", "--output", "new.json"],
        ):
            output = f"seed {seed}, file {number}: {command} on {path.name}"
            try:
                main([str(word) for word in command])
            except SystemExit as end:
                assert end.code, output
            assert not [*folder.rglob(RAN), *folder.rglob(ESCAPED)], f"{output} ran or wrote what it should not"
            assert not any(file.exists() for file in outside), f"{output} wrote outside its folder"
