"""The folder `onnx/` of a model: graphs that run in a process without torch and transformers.

```
made_from.json                               checksums of the source files and of the graphs
encoder.onnx, decoder.onnx, captioner.json   captioner, for [`~captioner.ExportedCaptioner`] and [`VisionGraph`]
text.onnx, image.onnx, text.json             dual encoder, for [`TextGraph`] and [`ImageGraph`]
weights.json                                 packaged models only
```

Graphs are used only if all these files are unchanged. The weights of a graph may be in a file with the suffix `.data`.
Graphs of packaged models have no weights; `weights.json` has their location in the files of the model and of installed
packages: file, type, offset and shape, by graph and tensor.
"""

import hashlib
import json
import math
import os
import shutil
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache, partial
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np

from ..io.files import read_json_or_none, sha256, write_text_atomically
from .captioner import SETTINGS, ExportedCaptioner, Graph, load_graph, pixels_of

FOLDER, MADE_FROM = "onnx", "made_from.json"
TEXT, IMAGE, TEXT_SETTINGS = "text.onnx", "image.onnx", "text.json"
WEIGHTS = "weights.json"
CAPTIONER_GRAPHS = ("encoder.onnx", "decoder.onnx")
GRAPHS = (*CAPTIONER_GRAPHS, TEXT, IMAGE)
FILES = (*GRAPHS, *(f"{graph}.data" for graph in GRAPHS), SETTINGS, TEXT_SETTINGS, WEIGHTS)
SOURCES = (
    *("config.json", "generation_config.json", "preprocessor_config.json", "processor_config.json"),
    *("tokenizer.json", "tokenizer_config.json", "[!.]*.safetensors"),
)
"""Files of a model that its outputs depend on."""


class TextGraph:
    """The text encoder of a dual encoder, with the `fingerprint` of the model."""

    def __init__(self, folder: Path) -> None:
        from tokenizers import Tokenizer

        self.settings = json.loads((folder / FOLDER / TEXT_SETTINGS).read_text(encoding="utf-8"))
        self.fingerprint: str = self.settings["fingerprint"]
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(self.settings["longest_text"])
        self.graph = open_tower(folder, TEXT)

    def embed(self, text: str) -> np.ndarray | None:
        """Returns the embedding of a text, float32 `(1, dimension)`; None if no word is in the vocabulary."""
        ids = self.tokenizer.encode(text).ids
        if set(ids) <= {*self.settings["special_ids"]}:
            return None
        length = self.settings["longest_text"] if self.settings["fixed_length"] else len(ids)
        input_ids = np.full((1, length), self.settings["pad_token_id"], dtype=np.int64)
        input_ids[0, : len(ids)] = ids
        inputs = {"input_ids": input_ids, "attention_mask": (np.arange(length) < len(ids)).astype(np.int64)[None]}
        return self.graph({name: inputs[name] for name in self.settings["inputs"]})


class GraphImages:
    """Makes the pixels that a graph takes, in place of an image processor."""

    do_resize = True

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self.settings = settings  # of [`~captioner.pixels_of`]
        self.size = {"height": settings["height"], "width": settings["width"]}

    def __call__(self, images: Sequence[Any], return_tensors: str | None = None) -> dict[str, np.ndarray]:
        """Returns `pixel_values` `(B, 3, height, width)`, float32."""
        return {"pixel_values": np.stack([pixels_of(image, self.settings) for image in images])}


class ImageGraph:
    """The image encoder of a dual encoder, for pixels from its processor or that of the captioner."""

    def __init__(self, folder: Path) -> None:
        settings = json.loads((folder / FOLDER / TEXT_SETTINGS).read_text(encoding="utf-8"))
        self.fingerprint: str = settings["fingerprint"]
        self.dimension: int | None = settings.get("dimension")  # which earlier versions did not write
        self.image_processor = GraphImages(settings["image"]) if settings.get("image") else None
        self.graph = open_tower(folder, IMAGE)

    def embed(self, inputs: Mapping[str, np.ndarray]) -> np.ndarray:
        """Returns embeddings of images from `pixel_values`, float32 `(B, dimension)`."""
        return self.graph({"pixel_values": inputs["pixel_values"]})


class VisionGraph:
    """The vision encoder of a captioner, with the provenance of its features."""

    def __init__(self, folder: Path) -> None:
        settings = json.loads((folder / FOLDER / SETTINGS).read_text(encoding="utf-8"))
        self.provenance: dict[str, Any] = {**settings["vision"]}
        self.config = SimpleNamespace(kind=self.provenance["kind"])
        self.image_processor = GraphImages(settings["image"])
        self.graph = open_graph(folder / FOLDER / settings["encoder"])

    def __call__(self, pixel_values: np.ndarray) -> dict[str, np.ndarray]:
        """Returns `visual_features` `(B, N, D)`, `visual_boxes` `(B, N, 4)`, and `attention_mask` `(B, N)` of ones."""
        encoded = self.graph({"pixel_values": pixel_values})
        features, boxes = encoded["features"], encoded["boxes"]
        return {"visual_features": features, "visual_boxes": boxes, "attention_mask": np.ones(boxes.shape[:2])}


def open_tower(folder: Path, name: str) -> Callable[[Mapping[str, Any]], np.ndarray]:
    """Returns a function from the inputs of a graph of a dual encoder to embeddings of length 1."""
    graph = open_graph(folder / FOLDER / name)

    def embed(inputs: Mapping[str, Any]) -> np.ndarray:
        features = graph(inputs)["features"]
        return features / np.linalg.norm(features, axis=-1, keepdims=True)

    return embed


def open_captioner(name: str) -> ExportedCaptioner | None:
    """Returns the graphs in a captioner's folder; None unless there are current graphs that can be run."""
    return open_beside(name, CAPTIONER_GRAPHS, lambda folder: ExportedCaptioner(folder / FOLDER, opens=open_graph))


def open_text_graph(name: str) -> TextGraph | None:
    """Returns the text encoder of a dual encoder; None as in [`open_captioner`]."""
    return open_beside(name, [TEXT], TextGraph)


def open_dual_encoder(name: str) -> tuple[ImageGraph, TextGraph] | None:
    """Returns both encoders of a dual encoder; None as in [`open_captioner`]."""
    return open_beside(name, [IMAGE, TEXT], lambda folder: (ImageGraph(folder), TextGraph(folder)))


def open_beside(name: str, graphs: Iterable[str], opens: Callable[[Path], Any]) -> Any:
    """Returns what `opens` makes of a model's folder, or `None`, as [`open_captioner`] does."""
    try:
        return opens(Path(name)) if is_current(Path(name), graphs) else None
    except Exception:  # no ONNX Runtime, or damaged files; loading the model reports errors
        return None


def open_graph(path: Path, num_threads: int | None = None) -> Graph:
    """Opens a graph on the CPU; like PyTorch, uses the number of threads in OMP_NUM_THREADS."""
    threads, places = os.environ.get("OMP_NUM_THREADS", ""), read_json_or_none(path.with_name(WEIGHTS)) or {}
    weights, content = {}, cache(lambda file: np.memmap(place_of(path.parents[1], file), mode="r"))
    for tensor, (file, dtype, offset, shape) in places.get(path.name, {}).items():
        stored = np.frombuffer(content(file), dtype, math.prod(shape), offset).reshape(shape)
        weights[tensor] = np.require(stored, requirements="A")
    opens = partial(load_graph, path, int(threads) if threads.isdigit() else None, ["CPUExecutionProvider"])
    if path.name != TEXT:
        return opens(weights)
    graph = opens()  # reads only the few weights for a query instead of preparing all
    return lambda inputs: graph({**inputs, **weights})


def is_current(folder: Path, graphs: Iterable[str] = ()) -> bool:
    """Returns whether a model has these graphs, and the graphs and their sources are unchanged."""
    recorded = read_json_or_none(folder / FOLDER / MADE_FROM)
    if not isinstance(recorded, dict) or not {f"{FOLDER}/{graph}" for graph in graphs} <= recorded.keys():
        return False
    return set(source_files(folder)) <= recorded.keys() and all(
        place_of(folder, name).is_file() and checksum_of(folder, name) == checksum
        for name, checksum in recorded.items()
    )


def checksum_of(folder: Path, name: str) -> str:
    """Returns the checksum of a file; for a file of a package, which may be large, of its size and first mebibyte."""
    file = place_of(folder, name)
    if ":" not in name:
        return sha256(file)
    with open(file, "rb") as stream:
        return hashlib.sha256(str(file.stat().st_size).encode() + stream.read(2**20)).hexdigest()


def source_files(folder: Path) -> list[str]:
    return sorted(file.name for pattern in SOURCES for file in folder.glob(pattern))


def place_of(folder: Path, name: str) -> Path:
    """Returns the path of a file of a model or, for `PACKAGE:FILE`, of an installed package; for names that lead
    elsewhere, a path that does not exist."""
    package, _, file = name.rpartition(":")
    if os.path.isabs(file) or ".." in Path(file).parts:
        return Path(os.devnull)
    if not package:
        return folder / name
    spec = find_spec(package) if package.isidentifier() else None
    homes = (spec and spec.submodule_search_locations) or [os.devnull]
    return Path(homes[0], file)


def record_sources(folder: Path, graphs: Path, elsewhere: Iterable[str] = ()) -> None:
    """Records that graphs were made from the current files of a model."""
    sums = {name: checksum_of(folder, name) for name in [*source_files(folder), *elsewhere]}
    sums |= {f"{FOLDER}/{name}": sha256(graphs / name) for name in FILES if (graphs / name).is_file()}
    write_text_atomically(graphs / MADE_FROM, json.dumps(sums, indent=1) + "\n")


def copy_graphs(source: Path, target: Path) -> None:
    """Copies the graphs of a model to another folder of the same model if they are current and, for graphs without
    weights, if the weight files are the same."""
    if not is_current(source):
        return
    recorded = read_json_or_none(source / FOLDER / MADE_FROM)
    read_weights = [name for name in recorded if name.endswith(".safetensors") and f"{FOLDER}/{WEIGHTS}" in recorded]
    for name in read_weights:
        if not place_of(target, name).is_file() or sha256(place_of(target, name)) != recorded[name]:
            return
    (target / FOLDER).mkdir()
    for name in FILES:
        if f"{FOLDER}/{name}" in recorded:
            shutil.copyfile(source / FOLDER / name, target / FOLDER / name)
    record_sources(target, target / FOLDER, [name for name in recorded if ":" in name])


def remove_old_graphs(folder: Path) -> None:
    """Removes the graphs of a model if the model has changed since they were made."""
    if (folder / FOLDER / MADE_FROM).is_file() and not is_current(folder):
        shutil.rmtree(folder / FOLDER)


def write_graphs_beside(model: Any, processor: Any, folder: Path, recorded: Mapping[str, Any] | str) -> None:
    """Writes `onnx/` for a captioner with the provenance of its features, or a dual encoder with its fingerprint.

    The model must be a model of this package that reads images, unchanged since it was loaded from the folder, in
    float32 on the CPU.
    """
    from tokenizers import Tokenizer

    from ..guests.dual_encoders import dual_encoder_of
    from ..io.folders import write_folder_atomically
    from ..models.pretrained_weights import is_packaged
    from ..registry import own_model_types
    from .folder import (
        TEXTS,
        image_settings,
        word_settings,
        write_captioner_graphs,
        write_image_graph,
        write_text_graph,
    )
    from .graphs import UnexportableError

    model_type, tokenizer = model.config.model_type, processor.tokenizer
    if model_type not in own_model_types() or model.config.vision_config is None:
        raise UnexportableError(
            f"This {model_type} model has no vision encoder; give a folder for its graphs with --output."
        )
    vision = model.config.vision_config
    if not vision.save_frozen_weights and not is_packaged(vision.pretrained):
        raise UnexportableError(f"Weights of the vision encoder are not in this folder but in {vision.pretrained}.")
    if not isinstance(recorded, str) and word_settings(tokenizer)["vocabulary"] is None:
        raise UnexportableError("Its vocabulary has subwords; give a folder for the graphs with --output.")

    def write(target: Path) -> None:
        if not isinstance(recorded, str):
            write_captioner_graphs(model, processor, target, recorded)
        else:
            plain = Tokenizer.from_file(str(folder / "tokenizer.json"))
            plain.no_padding()
            if any(plain.encode(text).ids != tokenizer(text)["input_ids"] for text in TEXTS):
                raise UnexportableError(f"{folder}: tokenizer.json alone splits texts differently from the tokenizer.")
            encoder = dual_encoder_of(model, processor)
            image = None
            with suppress(UnexportableError):  # such as regions; a search needs only texts
                write_image_graph(encoder, target)
                image = image_settings(model, processor)
            settings = {
                "dimension": encoder.dimension,
                "inputs": list(encoder.text_inputs(TEXTS)),
                **write_text_graph(encoder, target),
                "pad_token_id": tokenizer.pad_token_id,
                "special_ids": sorted({tokenizer.unk_token_id, *tokenizer.all_special_ids}),
                "image": image,
                "fingerprint": recorded,
            }
            write_text_atomically(target / TEXT_SETTINGS, json.dumps(settings, indent=1) + "\n")
        record_sources(folder, target)

    write_folder_atomically(folder / FOLDER, write, manifest=False)
