"""Graphs beside a model, in its folder `onnx/`, by which commands answer without torch; see [`onnx_folder`]."""

import json
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedModel

from ..guests.dual_encoders import dual_encoder_of
from ..io.files import write_text_atomically
from ..io.folders import write_folder_atomically
from ..models.packaged_backbones import find_packaged_weights, is_packaged
from ..models.text_encoders import PACKAGES as TEXT_PACKAGES
from ..models.text_encoders import find_text_encoder
from ..registry import own_model_types
from .dual_encoder import MAX_FIXED_LENGTH, TEXTS, write_text_graph
from .folder import eager_attention, word_settings, write_captioner_graphs
from .formats import UnexportableError
from .onnx_folder import CAPTIONER_GRAPHS, FOLDER, TEXT, TEXT_SETTINGS, place_of, record_sources
from .small_graphs import leave_weights_out, store_in_half


def write_graphs_beside(model: PreTrainedModel, processor: Any, folder: Path, fingerprint: str | None = None) -> None:
    """Writes `onnx/` of a model of images, in place of an earlier one.

    Args:
        model: as it was loaded from the folder, in float32 on the CPU, in evaluation mode; a captioner or a dual
            encoder of this package.
        processor: the model's.
        folder: the model's.
        fingerprint: of a dual encoder, as indexes record it.

    Raises:
        UnexportableError: it has no exported form, is none of this package, is a captioner of pieces of words, or has
            weights elsewhere than in the folder and in installed packages.
    """
    config: Any = model.config
    if config.model_type not in own_model_types() or config.vision_config is None:
        raise UnexportableError(
            f"A {config.model_type} model without a vision encoder, or of another package, has no graphs in its own "
            "folder; name another one with --output."
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
            settings = write_text_tower(model, processor, folder, target, elsewhere)
            text = json.dumps({**settings, "fingerprint": fingerprint}, indent=1)
            write_text_atomically(target / TEXT_SETTINGS, text + "\n")
        record_sources(folder, elsewhere, target)

    write_folder_atomically(folder / FOLDER, write, manifest=False)


def write_text_tower(
    model: PreTrainedModel, processor: Any, folder: Path, target: Path, elsewhere: list[str]
) -> dict[str, Any]:
    """Writes the graph of texts without its weights; returns its settings."""
    from tokenizers import Tokenizer

    encoder, tokenizer = dual_encoder_of(model, processor), processor.tokenizer
    plain = Tokenizer.from_file(str(folder / "tokenizer.json"))
    plain.no_padding()
    if any(plain.encode(text).ids != tokenizer(text)["input_ids"] for text in TEXTS):
        raise UnexportableError(f"{folder}: tokenizer.json alone splits texts in another way than the tokenizer.")
    with eager_attention(model), torch.no_grad():
        fixed_length = write_text_graph(encoder, target)
    files = [file.name for file in folder.glob("*.safetensors")]
    files += [name for name in elsewhere if name.endswith(".safetensors")]
    weights = leave_weights_out(target / TEXT, tensors_of(folder, files))
    return {
        "inputs": list(encoder.text_inputs(TEXTS)),
        "longest_text": min(encoder.longest_text, MAX_FIXED_LENGTH) if fixed_length else encoder.longest_text,
        "fixed_length": fixed_length,
        "pad_token_id": tokenizer.pad_token_id,
        "special_ids": sorted({tokenizer.unk_token_id, *tokenizer.all_special_ids}),
        "weights": weights,
    }


def tensors_of(folder: Path, files: list[str]) -> dict[tuple[str, str], Any]:
    from safetensors.numpy import load_file

    return {(file, name): one for file in files for name, one in load_file(place_of(folder, file)).items()}


def weights_elsewhere(config: Any) -> list[str]:
    """Returns the files of installed packages with weights that the model's folder leaves out."""
    found = []
    vision = config.vision_config
    if not vision.save_frozen_weights:
        if not is_packaged(vision.pretrained):
            raise UnexportableError(f"Weights of the vision encoder are not in this folder but in {vision.pretrained}.")
        found.append(find_packaged_weights(vision.pretrained))
    if not getattr(config, "save_frozen_weights", True):
        if config.text_pretrained not in TEXT_PACKAGES:
            place = config.text_pretrained
            raise UnexportableError(f"Weights of the text encoder are not in this folder but in {place}.")
        found += sorted(Path(find_text_encoder(config.text_pretrained)).glob("*.safetensors"))
    return list(map(name_in_package, found))


def name_in_package(file: Path) -> str:
    """Returns `PACKAGE:FILE` of a file of an installed package."""
    home = next(folder for folder in file.parents if (folder / "__init__.py").is_file())
    return f"{home.name}:{file.relative_to(home).as_posix()}"
