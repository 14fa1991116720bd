"""Files of third-party formats that a stranger has prepared: code in pickles, links, names that lead elsewhere."""

import io
import os
import pickle
import random
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import torch
from PIL import Image

RAN, ESCAPED = "RAN", "ESCAPED"
"""Files that a payload makes in the working folder, and that a name in an archive makes beside it."""
NAMES = (f"../{ESCAPED}", f"/tmp/{ESCAPED}", f"a/../../{ESCAPED}", "1.npy", "", ".", "a\\..\\b", "é" * 200, "1/2.png")


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
    """An .npy file, alone or in an .npz, that holds objects."""
    file = io.BytesIO()
    np.save(file, np.array([payload(draw)], dtype=object), allow_pickle=True)
    content = file.getvalue()
    if draw.random() < 0.5:
        (folder / "1.npy").write_bytes(content)
        return folder / draw.choice(["1.npy", "."])
    with zipfile.ZipFile(folder / "1.npz", "w", draw.choice([zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])) as archive:
        for name in draw.sample(["x.npy", "bbox.npy", "info.npy", *NAMES[:4]], 3):
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


def tars(draw: random.Random, folder: Path) -> Path:
    """A tar file of images and captions whose names and kinds lead elsewhere."""
    picture = io.BytesIO()
    Image.new("RGB", (8, 8)).save(picture, "PNG")
    path = folder / "photos-000.tar"
    with tarfile.open(path, "w", format=draw.choice([tarfile.GNU_FORMAT, tarfile.PAX_FORMAT])) as archive:
        for number in range(draw.choice([1, 3])):
            name = draw.choice([f"{number}", *NAMES])
            for content, ending in ((picture.getvalue(), ".png"), (b"a red ball", ".txt")):
                member = tarfile.TarInfo(name + ending)
                member.size = len(content)
                if draw.random() < 0.2:
                    member.type = draw.choice([tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.DIRTYPE])
                    member.linkname, member.size = draw.choice(["/etc/passwd", "../..", name]), 0
                archive.addfile(member, io.BytesIO(content))
    return path


def hostile_file(draw: random.Random, folder: Path) -> Path:
    """Writes a file, or a folder of one, into a folder and returns its path."""
    folder.mkdir(exist_ok=True)
    return draw.choice([pickled, pickled, arrays, arrays, tables, tars])(draw, folder)
