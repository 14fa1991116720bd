"""Small files in every format of features, with the same numbers if the format can store them."""

import base64
from pathlib import Path

import numpy as np
import torch

SIZES = {7: (64, 48), 12: (30, 60), 391895: (100, 80)}
"""Width and height by image id."""
REGIONS = {7: 3, 12: 5, 391895: 2}
DIMENSION = 6
GRID = (3, 2)
VIDEOS = {"b-video_000001": 4, "a-video_000012": 2}


def features_of(image_id: int) -> np.ndarray:
    draw = np.random.default_rng(image_id)
    return draw.uniform(0, 3, (REGIONS[image_id], DIMENSION)).astype(np.float32)


def boxes_of(image_id: int) -> np.ndarray:
    """Corners in pixels; the first box is the complete image."""
    draw = np.random.default_rng([image_id, 1])
    sides = np.tile(SIZES[image_id], 2)
    corners = np.sort(draw.uniform(0, 1, (REGIONS[image_id], 2, 2)), axis=1).reshape(-1, 4)
    corners[0] = 0, 0, 1, 1
    return (corners * (sides - 1)).astype(np.float32)


def map_of(image_id: int) -> np.ndarray:
    """A feature map (D, h, w)."""
    return np.random.default_rng([image_id, 2]).uniform(0, 3, (DIMENSION, *GRID)).astype(np.float32)


def frames_of(video: str) -> np.ndarray:
    return np.random.default_rng(VIDEOS[video]).uniform(0, 3, (VIDEOS[video], DIMENSION)).astype(np.float32)


def tsv_line(image_id: int, /, **changes: object) -> bytes:
    """A line of bottom-up attention; the arguments replace fields or arrays."""
    width, height = SIZES[image_id]
    fields = {
        "image_id": image_id,
        "image_w": width,
        "image_h": height,
        "num_boxes": REGIONS[image_id],
        "boxes": boxes_of(image_id),
        "features": features_of(image_id),
        **changes,
    }
    encode = {np.ndarray: lambda value: base64.b64encode(value.tobytes()).decode()}
    values = (encode.get(type(value), str)(value) for value in fields.values())
    return "\t".join(values).encode()


def write_tsv(path: Path, lines: list[bytes] | None = None, end: bytes = b"\r\n") -> Path:
    lines = [tsv_line(image_id) for image_id in SIZES] if lines is None else lines
    path.write_bytes(b"".join(line + end for line in lines))
    return path


def write_cocobu(path: Path) -> Path:
    for part in ("att", "box", "fc"):
        (path / f"cocobu_{part}").mkdir(parents=True)
    for image_id in SIZES:
        np.savez_compressed(path / "cocobu_att" / f"{image_id}.npz", feat=features_of(image_id))
        np.save(path / "cocobu_box" / f"{image_id}.npy", boxes_of(image_id))
        np.save(path / "cocobu_fc" / f"{image_id}.npy", features_of(image_id).mean(0))
    return path


def vqa_arrays(image_id: int, transposed: bool = True) -> dict[str, object]:
    width, height = SIZES[image_id]
    features = features_of(image_id)
    sizes = {"image_w": width, "image_h": height, "num_bbox": REGIONS[image_id]}
    return {"x": features.T if transposed else features, "bbox": boxes_of(image_id), **sizes}


def write_vqa(path: Path, transposed: bool = True) -> Path:
    path.mkdir(parents=True)
    for image_id in SIZES:
        name = f"COCO_val2014_{image_id:012d}.jpg.npz" if transposed else f"{image_id:012d}.npz"
        more = {} if transposed else {"info": np.array({"objects_id": [1]}, dtype=object)}
        np.savez(path / name, **vqa_arrays(image_id, transposed), **more)
    return path


def write_hdf5(path: Path, arrays: dict[str, np.ndarray]) -> Path:
    import h5py

    with h5py.File(path, "w") as file:
        for name, array in arrays.items():
            file.create_dataset(name, data=array, compression="gzip" if array.size > 10 else None)
    return path


def write_m2(path: Path) -> Path:
    features = {f"{image_id}_features": features_of(image_id) for image_id in SIZES}
    boxes = {f"{image_id}_boxes": boxes_of(image_id) for image_id in SIZES}
    return write_hdf5(path, {**features, **boxes})


def write_grid_hdf5(path: Path) -> Path:
    cells = {f"{image_id}_grids": map_of(image_id).reshape(DIMENSION, -1).T[:4] for image_id in SIZES}
    return write_hdf5(path, cells)


def write_pth(path: Path) -> Path:
    """Feature maps in both of torch's formats."""
    for number, image_id in enumerate(SIZES):
        folder = path / f"part{number % 2}"
        folder.mkdir(parents=True, exist_ok=True)
        tensor = torch.from_numpy(map_of(image_id))[None]
        torch.save(tensor, folder / f"{image_id}.pth", _use_new_zipfile_serialization=number != 1)
    return path


def write_maps(path: Path) -> Path:
    path.mkdir(parents=True)
    for image_id in SIZES:
        np.save(path / f"{image_id}.npy", map_of(image_id).astype(np.float16))
    return path


def write_vatex(path: Path) -> Path:
    path.mkdir(parents=True)
    for video in VIDEOS:
        np.save(path / f"{video}.npy", frames_of(video)[None])
    return path
