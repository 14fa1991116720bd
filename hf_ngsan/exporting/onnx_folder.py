"""The folder `onnx/` of a model: graphs that answer in a process without torch and transformers.

```
made_from.json                               checksums of the files that the graphs were made from, and of theirs
encoder.onnx, decoder.onnx, captioner.json   of a captioner, for [`~captioner.Captioner`]
text.onnx, text.json                         of a dual encoder, for [`TextGraph`]
```

Graphs count only as long as all these files are what they were. They are small without any loss: weights are in half
precision if that holds them exactly, or stay in the files of their model.
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
SOURCES = (
    *("config.json", "generation_config.json", "preprocessor_config.json", "processor_config.json"),
    *("tokenizer.json", "tokenizer_config.json", "*.safetensors"),
)
"""Files of a model that its answers depend on."""
MIN_SIZE = 256  # of weights that are changed, in numbers
FOLDING_ERROR = 1e-6  # of the rounding of a product, as a share of the largest weight


class TextGraph:
    """The text encoder of a dual encoder, whose `fingerprint` it has; its weights are read from the model's files."""

    def __init__(self, folder: Path) -> None:
        from safetensors import safe_open
        from tokenizers import Tokenizer

        self.settings = json.loads((folder / FOLDER / TEXT_SETTINGS).read_text(encoding="utf-8"))
        self.fingerprint: str = self.settings["fingerprint"]
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.tokenizer.no_padding()
        self.tokenizer.enable_truncation(self.settings["longest_text"])
        places = self.settings["weights"]  # by name in the graph: file, name there, whether to transpose it
        opened = {file: safe_open(place_of(folder, file), framework="np") for file, _, _ in places.values()}
        self.weights = {}
        for name, (file, tensor, is_transposed) in places.items():
            array = opened[file].get_tensor(tensor)
            self.weights[name] = np.ascontiguousarray(array.T if is_transposed else array, dtype=np.float32)
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
    """Returns the graphs in a captioner's folder; None if there are none that can be run and are current."""
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
    """Opens a graph on the CPU, with the number of threads that OMP_NUM_THREADS sets, which PyTorch obeys too."""
    threads = os.environ.get("OMP_NUM_THREADS", "")
    return load_graph(path, int(threads) if threads.isdigit() and int(threads) else None, ["CPUExecutionProvider"])


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
    """Records that graphs, by default those in the folder, were made from the files of a model as they are now."""
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


def write_graphs_beside(model: Any, processor: Any, folder: Path, fingerprint: str | None = None) -> None:
    """Writes `onnx/` of a captioner, or of a dual encoder with its fingerprint, in place of an earlier one.

    The model, of this package, reads images; it is as it was loaded from the folder, in float32 on the CPU.
    """
    from ..io.folders import write_folder_atomically
    from ..registry import own_model_types
    from .folder import word_settings, write_captioner_graphs
    from .graphs import UnexportableError

    config = model.config
    if config.model_type not in own_model_types() or config.vision_config is None:
        raise UnexportableError(
            f"A {config.model_type} model without an own vision encoder has no graphs beside it; name an --output."
        )
    if fingerprint is None and word_settings(processor.tokenizer)["vocabulary"] is None:
        raise UnexportableError("Its words consist of pieces; name another folder with --output.")
    elsewhere = weights_elsewhere(config)

    def write(target: Path) -> None:
        if fingerprint is None:
            write_captioner_graphs(model, processor, target)
            weights = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
            for graph in CAPTIONER_GRAPHS.values():
                store_in_half(target / graph, weights)
        else:
            settings = write_text_tower(model, processor, folder, target, elsewhere) | {"fingerprint": fingerprint}
            write_text_atomically(target / TEXT_SETTINGS, json.dumps(settings, indent=1) + "\n")
        record_sources(folder, elsewhere, target)

    write_folder_atomically(folder / FOLDER, write, manifest=False)


def write_text_tower(model: Any, processor: Any, folder: Path, target: Path, elsewhere: list[str]) -> dict[str, Any]:
    """Writes the graph of texts without its weights; returns its settings."""
    from safetensors.numpy import load_file
    from tokenizers import Tokenizer

    from ..guests.dual_encoders import dual_encoder_of
    from .folder import MAX_FIXED_LENGTH, TEXTS, write_text_graph
    from .graphs import UnexportableError

    encoder, tokenizer = dual_encoder_of(model, processor), processor.tokenizer
    plain = Tokenizer.from_file(str(folder / "tokenizer.json"))
    plain.no_padding()
    if any(plain.encode(text).ids != tokenizer(text)["input_ids"] for text in TEXTS):
        raise UnexportableError(f"{folder}: tokenizer.json alone splits texts in another way than the tokenizer.")
    fixed_length = write_text_graph(encoder, target)
    files = [file.name for file in folder.glob("*.safetensors")]
    files += [name for name in elsewhere if name.endswith(".safetensors")]
    tensors = {(file, name): tensor for file in files for name, tensor in load_file(place_of(folder, file)).items()}
    return {
        "inputs": list(encoder.text_inputs(TEXTS)),
        "longest_text": min(encoder.longest_text, MAX_FIXED_LENGTH) if fixed_length else encoder.longest_text,
        "fixed_length": fixed_length,
        "pad_token_id": tokenizer.pad_token_id,
        "special_ids": sorted({tokenizer.unk_token_id, *tokenizer.all_special_ids}),
        "weights": leave_weights_out(target / TEXT, tensors),
    }


def weights_elsewhere(config: Any) -> list[str]:
    """Returns the files of installed packages with weights that the model's folder leaves out, as `PACKAGE:FILE`."""
    from ..models.pretrained_weights import find_packaged_weights, is_packaged
    from ..models.text_encoders import PACKAGES, find_text_encoder
    from .graphs import UnexportableError

    files, vision = [], config.vision_config
    if not vision.save_frozen_weights:
        if not is_packaged(vision.pretrained):
            raise UnexportableError(f"Weights of the vision encoder are not in this folder but in {vision.pretrained}.")
        files.append(find_packaged_weights(vision.pretrained))
    if not getattr(config, "save_frozen_weights", True):
        if config.text_pretrained not in PACKAGES:
            raise UnexportableError(
                f"Weights of the text encoder are not in this folder, but in {config.text_pretrained}."
            )
        files += sorted(Path(find_text_encoder(config.text_pretrained)).glob("*.safetensors"))
    homes = [next(folder for folder in file.parents if (folder / "__init__.py").is_file()) for file in files]
    return [f"{home.name}:{file.relative_to(home).as_posix()}" for file, home in zip(files, homes, strict=True)]


def store_in_half(path: Path, weights: Mapping[str, np.ndarray]) -> None:
    """Stores the weights of a graph that half precision holds exactly in it; the graph casts them when it is opened.

    A convolution with folded normalization is stored as the model's own weight, and a factor for each channel.
    """
    import onnx
    from onnx import helper, numpy_helper

    graph, nodes = onnx.load(str(path)), []
    for tensor in list(graph.graph.initializer):
        values = numpy_helper.to_array(tensor)
        if values.dtype != np.float32 or values.size < MIN_SIZE:
            continue
        name, factors = tensor.name, None
        if not fits_half(values):
            folded = unfolded(values, next((own for key, own in weights.items() if name.endswith(f".{key}")), None))
            if folded is None:
                continue
            values, factors = folded
        graph.graph.initializer.remove(tensor)
        graph.graph.initializer.append(numpy_helper.from_array(values.astype(np.float16), f"{name}_half"))
        result = name if factors is None else f"{name}_unfolded"
        nodes.append(helper.make_node("Cast", [f"{name}_half"], [result], to=onnx.TensorProto.FLOAT))
        if factors is not None:
            graph.graph.initializer.append(numpy_helper.from_array(factors, f"{name}_factors"))
            nodes.append(helper.make_node("Mul", [result, f"{name}_factors"], [name]))
    for node in reversed(nodes):
        graph.graph.node.insert(0, node)
    save_as_one(graph, path)


def fits_half(values: np.ndarray) -> bool:
    with np.errstate(over="ignore"):
        return bool((values.astype(np.float16).astype(np.float32) == values).all())


def unfolded(values: np.ndarray, own: np.ndarray | None) -> tuple[np.ndarray, np.ndarray] | None:
    """Returns a weight in half precision and the factor of each channel whose product is a folded weight, if any."""
    if own is None or own.shape != values.shape or not fits_half(own):
        return None
    axes = tuple(range(1, values.ndim))
    squares = (own.astype(np.float64) ** 2).sum(axes, keepdims=True)
    products = (own.astype(np.float64) * values).sum(axes, keepdims=True)
    factors = (products / np.where(squares == 0, 1, squares)).astype(np.float32)
    is_same = np.abs(own * factors - values).max() <= FOLDING_ERROR * np.abs(values).max()
    return (own, factors) if is_same else None


def leave_weights_out(path: Path, tensors: Mapping[tuple[str, str], np.ndarray]) -> dict[str, tuple[str, str, bool]]:
    """Makes weights of a graph that are `tensors` its inputs; returns file, name and whether transposed of each."""
    import onnx
    from onnx import helper, numpy_helper

    def identity(values: np.ndarray) -> tuple[tuple[int, ...], int]:
        return values.shape, hash(values.tobytes())

    places: dict[Any, tuple[str, str, bool]] = {}
    for (file, name), tensor in tensors.items():
        if tensor.dtype in (np.float16, np.float32) and tensor.size >= MIN_SIZE:
            values = tensor.astype(np.float32)
            if values.ndim == 2:
                places.setdefault(identity(values.T), (file, name, True))
            places[identity(values)] = file, name, False
    graph, left_out = onnx.load(str(path)), {}
    for tensor in list(graph.graph.initializer):
        values = numpy_helper.to_array(tensor)
        place = places.get(identity(values)) if values.dtype == np.float32 else None
        if place is not None:
            graph.graph.initializer.remove(tensor)
            graph.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
            left_out[tensor.name] = place
    save_as_one(graph, path)
    return left_out


def save_as_one(graph: Any, path: Path) -> None:
    """Writes a graph as one file, without the `.data` of the exporter beside it."""
    import onnx

    onnx.save(graph, str(path))
    path.with_name(f"{path.name}.data").unlink(missing_ok=True)
