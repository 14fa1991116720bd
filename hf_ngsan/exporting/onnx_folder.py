"""The folder `onnx/` of a model: graphs that answer in a process without torch and transformers.

```
made_from.json                               checksums of the files that the graphs were made from, and of theirs
encoder.onnx, decoder.onnx, captioner.json   of a captioner, for [`~captioner.Captioner`]
text.onnx, text.json                         of a dual encoder, for [`TextGraph`]
```

Graphs count only as long as all these files are what they were: after fine-tuning, or with other settings of
`generate()`, the model itself answers. `hf-ngsan export --model DIR` makes them anew.
"""

import json
import os
import shutil
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from ..io.files import read_json_or_none, sha256, write_text_atomically
from .captioner import SETTINGS, Captioner, load_graph

FOLDER, MADE_FROM = "onnx", "made_from.json"
TEXT, TEXT_SETTINGS = "text.onnx", "text.json"
CAPTIONER_GRAPHS = {"encoder": "encoder.onnx", "decoder": "decoder.onnx"}
FILES = (*CAPTIONER_GRAPHS.values(), SETTINGS, TEXT, TEXT_SETTINGS)
"""All files but the record; the folder of a model holds those of a captioner or those of a dual encoder."""
SOURCES = (
    "config.json",
    "generation_config.json",
    "preprocessor_config.json",
    "processor_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "*.safetensors",
)
"""Files of a model that its answers depend on."""


class TextGraph:
    """The text encoder of a dual encoder; its weights are read from the model's own files.

    Args:
        folder: the model's, with current graphs.

    Attributes:
        fingerprint: the model's, as indexes record it.
    """

    def __init__(self, folder: Path) -> None:
        from tokenizers import Tokenizer

        self.settings = json.loads((folder / FOLDER / TEXT_SETTINGS).read_text(encoding="utf-8"))
        self.fingerprint: str = self.settings["fingerprint"]
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(self.settings["longest_text"])
        self.weights = read_weights(folder, self.settings["weights"])
        self.graph = open_graph(folder / FOLDER / TEXT)

    def embed(self, text: str) -> np.ndarray | None:
        """Returns the embedding of a text, float32 `(1, dimension)`; None if it has no word that the model knows."""
        try:
            ids = self.tokenizer.encode(text).ids
        except (TypeError, UnicodeError):  # lone surrogates, of an argument that is not UTF-8
            return None
        if set(ids) <= {*self.settings["special_ids"]}:
            return None
        length = self.settings["longest_text"] if self.settings["fixed_length"] else len(ids)
        input_ids = np.full((1, length), self.settings["pad_token_id"], dtype=np.int64)
        input_ids[0, : len(ids)] = ids
        given = {"input_ids": input_ids, "attention_mask": (np.arange(length) < len(ids)).astype(np.int64)[None]}
        features = self.graph({name: given[name] for name in self.settings["inputs"]} | self.weights)["features"]
        return features / np.linalg.norm(features, axis=-1, keepdims=True)


def open_captioner(name: str) -> Captioner | None:
    """Returns the graphs of a captioner of images; None if there are none that can be run and are current.

    Args:
        name: for [`~hf_ngsan.io.packaged.find_model_folder`], which has found it.
    """
    try:
        if not is_current(Path(name), CAPTIONER_GRAPHS.values()):
            return None
        captioner = Captioner(Path(name, FOLDER), opens=open_graph)
    except Exception:  # without ONNX Runtime, or damaged: the model itself says what is wrong, if anything is
        return None
    files = {part: captioner.settings[part] for part in CAPTIONER_GRAPHS}
    return captioner if files == CAPTIONER_GRAPHS else None


def open_text_graph(name: str) -> TextGraph | None:
    """Returns the text encoder of a dual encoder, as [`open_captioner`] returns a captioner."""
    try:
        return TextGraph(Path(name)) if is_current(Path(name), [TEXT]) else None
    except Exception:
        return None


def open_graph(path: Path, num_threads: int | None = None) -> Any:
    """Opens a graph on the CPU, with the number of threads that OMP_NUM_THREADS sets, which PyTorch obeys too.

    On a GPU the first of a process takes longer than an answer on the CPU.
    """
    threads = os.environ.get("OMP_NUM_THREADS", "")
    return load_graph(path, int(threads) if threads.isdigit() and int(threads) else None, ["CPUExecutionProvider"])


def read_weights(folder: Path, places: Mapping[str, tuple[str, str, bool]]) -> dict[str, np.ndarray]:
    """Returns weights, float32, from files of safetensors.

    Args:
        folder: the model's.
        places: file, name there and whether to transpose it, by name in the graph.
    """
    from safetensors import safe_open

    opened = {file: safe_open(place_of(folder, file), framework="np") for file, _, _ in places.values()}
    weights = {}
    for name, (file, tensor, is_transposed) in places.items():
        array = opened[file].get_tensor(tensor)
        weights[name] = np.ascontiguousarray(array.T if is_transposed else array, dtype=np.float32)
    return weights


def is_current(folder: Path, graphs: Iterable[str]) -> bool:
    """Returns whether a model has these graphs, and they and all that they were made from are unchanged."""
    recorded = read_json_or_none(folder / FOLDER / MADE_FROM)
    if not isinstance(recorded, dict) or not {f"{FOLDER}/{graph}" for graph in graphs} <= recorded.keys():
        return False
    return set(sources_of(folder)) <= recorded.keys() and all(
        (file := place_of(folder, name)).is_file() and sha256(file) == checksum for name, checksum in recorded.items()
    )


def sources_of(folder: Path) -> list[str]:
    return sorted(file.name for pattern in SOURCES for file in folder.glob(pattern))


def place_of(folder: Path, name: str) -> Path:
    """Returns the path of a file of a model, or of `PACKAGE:FILE`, a file of an installed package."""
    package, _, file = name.rpartition(":")
    if not package:
        return folder / name
    spec = find_spec(package) if package.isidentifier() else None
    homes = (spec and spec.submodule_search_locations) or [os.devnull]
    return Path(homes[0], file)


def record_sources(folder: Path, elsewhere: Iterable[str] = (), graphs: Path | None = None) -> None:
    """Records that graphs were made from the files of a model as they are now.

    Args:
        folder: the model's.
        elsewhere: files of installed packages, as [`place_of`] names them.
        graphs: where the graphs are; by default in the folder.
    """
    graphs = folder / FOLDER if graphs is None else graphs
    sums = {name: sha256(place_of(folder, name)) for name in [*sources_of(folder), *elsewhere]}
    sums |= {f"{FOLDER}/{name}": sha256(graphs / name) for name in FILES if (graphs / name).is_file()}
    write_text_atomically(graphs / MADE_FROM, json.dumps(sums, indent=1) + "\n")


def copy_graphs(source: Path, target: Path) -> None:
    """Copies the graphs of a model to another folder of the same model, if they are current."""
    if not is_current(source, []):
        return
    (target / FOLDER).mkdir()
    recorded = read_json_or_none(source / FOLDER / MADE_FROM)
    for name in FILES:
        if f"{FOLDER}/{name}" in recorded:
            shutil.copyfile(source / FOLDER / name, target / FOLDER / name)
    record_sources(target, [name for name in recorded if ":" in name])


def remove_old_graphs(folder: Path) -> None:
    """Removes the graphs of a model that has changed since they were made."""
    if (folder / FOLDER / MADE_FROM).is_file() and not is_current(folder, []):
        shutil.rmtree(folder / FOLDER)
