"""Writes folders of exported models: a captioner with captioner.py, compared with its model, or a dual encoder."""

import json
import operator
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from datasets import Dataset
from PIL import Image
from torch.export import Dim
from transformers import PreTrainedModel

from ..data.collator import visual_arguments
from ..guests.dual_encoders import EXPORTED_SETTINGS, DualEncoder, ExportedDualEncoder, ExportedModel, dual_encoder_of
from ..io.files import write_text_atomically
from ..io.packaged import WEIGHTS_FROM, complete_sources, write_licence
from ..models.captioning import CaptioningForConditionalGeneration
from . import captioner as reader
from .captioner import ExportedCaptioner, pixels_of
from .graphs import UnexportableError, decode, decoder_inputs, encode, encoder_inputs, write_graph

SEARCHED = (
    *("max_new_tokens", "max_length", "num_beams", "length_penalty", "early_stopping", "suppress_tokens"),
    *("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id"),
)
"""Settings of `generate()` that exported captioners support."""
WITHOUT_EFFECT = ("_", "cache_", "output_", "return_", "transformers_version", "use_cache")
"""Prefixes of names of settings that do not affect captions."""
MAX_DIFFERENCE = 1e-3  # maximum difference of log-probabilities
TOLERANCE = 1e-4  # maximum difference of embeddings
MAX_LENGTH = 4096  # maximum tokens of a text
MAX_FIXED_LENGTH = 64  # the same if every text is padded to the maximum
TEXTS = ("a photograph of a dog", "two")
MORE_TEXTS = ("a", "a man and a woman are standing in front of a building", "it")


def write_exported_captioner(model: PreTrainedModel, processor: Any, folder: Path) -> None:
    """Exports a captioner on the CPU, in evaluation mode, with the program captioner.py, into an empty folder."""
    write_captioner_graphs(model, processor, folder)
    shutil.copyfile(reader.__file__, folder / Path(reader.__file__).name)
    write_licence(model, folder)
    processor.tokenizer.backend_tokenizer.save(str(folder / "tokenizer.json"))


def write_captioner_graphs(
    model: PreTrainedModel, processor: Any, folder: Path, provenance: Mapping[str, Any] | None = None
) -> None:
    """Writes the graphs of a captioner and their settings, with the provenance of its features if it reads images."""
    if not isinstance(model, CaptioningForConditionalGeneration):
        raise UnexportableError(f"{type(model).__name__} is not a captioner of this package and cannot be exported.")
    config: Any = model.config
    image, decoding = image_settings(model, processor), decoding_settings(model)
    encoded = encoder_inputs(model, None if image is None else (image["height"], image["width"]))
    decoded = decoder_inputs(model, encoded)
    write_graph(model, encode, encoded, folder / "encoder.onnx")
    write_graph(model, decode, decoded, folder / "decoder.onnx")
    complete_sources(model)
    settings = {
        "model_type": config.model_type,
        "format": "onnx",
        "int8": False,
        "encoder": "encoder.onnx",
        "decoder": "decoder.onnx",
        "inputs": list(encoded),
        "square_grids": image is None and config.takes_square_grids,
        "cache": [[keys.shape[2], keys.shape[4]] for name, keys in decoded.items() if name.startswith("past_keys")],
        "decoding": decoding,
        "words": word_settings(processor.tokenizer),
        "image": image,
        "vision": provenance,
        WEIGHTS_FROM: getattr(config, WEIGHTS_FROM, []),
        "versions": {"transformers": transformers.__version__, "torch": torch.__version__},
    }
    write_text_atomically(folder / reader.SETTINGS, json.dumps(settings, ensure_ascii=False, indent=1) + "\n")


def decoding_settings(model: PreTrainedModel) -> dict[str, Any]:
    """Returns the settings of `generate()` for `captioner.json`."""
    settings: Any = model.generation_config
    config: Any = model.config
    changed = {name for name, value in settings.to_diff_dict().items() if value is not None}
    unknown = sorted(name for name in changed.difference(SEARCHED) if not name.startswith(WITHOUT_EFFECT))
    if unknown:
        problem = f"generation_config.json sets {unknown[0]}, which exported captioners do not support"
        raise UnexportableError(f"{problem}; remove it there.")
    names = ("decoder_start_token_id", "eos_token_id", "pad_token_id")
    start, ends, padding = (getattr(config if getattr(settings, name) is None else settings, name) for name in names)
    return {
        "decoder_start_token_id": start,
        "eos_token_ids": [ends] if isinstance(ends, int) else list(ends),
        "pad_token_id": padding,
        "num_beams": settings.num_beams or 1,
        "max_new_tokens": settings.max_new_tokens or (settings.max_length or 20) - 1,
        "most_tokens": config.max_position_embeddings if getattr(config, "position_embedding", "") == "table" else None,
        "length_penalty": 1.0 if settings.length_penalty is None else settings.length_penalty,
        "early_stopping": bool(settings.early_stopping) if settings.early_stopping != "never" else "never",
        "suppress_tokens": list(settings.suppress_tokens or []),
        "finished_beams": getattr(config, "finished_beams", "aside"),
    }


def word_settings(tokenizer: Any) -> dict[str, Any]:
    """Returns the vocabulary, None if words consist of subwords."""
    words: list[str] = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    special = sorted(set(tokenizer.all_special_ids))
    plain = [word for index, word in enumerate(words) if index not in special]
    is_plain = tokenizer.decode(range(len(words)), skip_special_tokens=True) == " ".join(plain)
    return {"special_ids": special, "vocabulary": words if is_plain else None}


def image_settings(model: PreTrainedModel, processor: Any) -> dict[str, Any] | None:
    """Returns the image preprocessing; `None` for a captioner of features."""
    vision: Any = model.config.vision_config
    if vision is None:
        return None
    image_processor = processor.image_processor
    settings = {
        "height": image_processor.size.get("height"),
        "width": image_processor.size.get("width"),
        "resample": int(image_processor.resample),
        "rescale_factor": float(image_processor.rescale_factor),
        "flip_channel_order": bool(getattr(image_processor, "do_flip_channel_order", False)),
        "mean": list(image_processor.image_mean),
        "std": list(image_processor.image_std),
    }
    if vision.kind == "grid" and settings["height"] and settings["width"]:
        picture = pictures(1)[0]
        pixels = pixels_of(picture, settings)
        expected = image_processor(picture, return_tensors="np")["pixel_values"][0]
        if expected.shape == pixels.shape and np.allclose(pixels, expected, atol=1e-5):
            return settings
    raise UnexportableError(
        f"Only captioners of the grid of an image that is resized to a fixed size and normalized can be exported. This "
        f"one reads {vision.kind}, or its image processor has other steps; change its settings if possible."
    )


@torch.inference_mode()
def compare_exported(
    model: Any,
    processor: Any,
    exported: ExportedCaptioner,
    rows: Dataset,
    beams: Sequence[int] = (1, 3),
    batch_size: int = 16,
) -> tuple[dict[int, int], float]:
    """Compares the captions of a captioner on the CPU and of its export, for rows of the feature contract.

    Returns the number of captions that differ, by number of beams, and the largest difference of log-probabilities
    along the captioner's captions. Rounding causes about 1e-5; more than [`MAX_DIFFERENCE`] means a wrong export.
    """
    others, difference = dict.fromkeys(beams, 0), 0.0
    for start in range(0, len(rows), batch_size):
        inputs = visual_arguments([rows[index] for index in range(start, min(start + batch_size, len(rows)))])
        batch, encoded = processor(**inputs), exported.encode(exported.prepare(**inputs))
        for width in beams:
            expected = processor.batch_decode(model.generate(**batch, num_beams=width), skip_special_tokens=True)
            captions = exported.words.decode(exported.generate(encoded, num_beams=width))
            others[width] += sum(map(operator.ne, captions, expected))
        output = model.generate(**batch, num_beams=1, return_dict_in_generate=True, output_logits=True)
        model_scores = torch.stack(output.logits, dim=1).float().log_softmax(-1).numpy()
        exported_scores = exported.log_probabilities(encoded, output.sequences[:, :-1].numpy())
        difference = float(np.maximum(difference, np.abs(exported_scores - model_scores).max()))  # propagates NaN
    return others, difference


compare = compare_exported  # its former name, kept for a release


@torch.no_grad()
def write_exported_dual_encoder(model: PreTrainedModel, processor: Any, folder: Path) -> float:
    """Exports a dual encoder on the CPU as two graphs; returns the largest difference of their embeddings.

    For a recurrent text encoder such as MHSAN's, texts are padded to the maximum length.
    """
    encoder = dual_encoder_of(model, processor)
    if encoder.image_processor is None:
        raise UnexportableError("This dual encoder has no vision encoder and cannot embed images.")
    write_image_graph(encoder, folder)
    settings = {"dimension": encoder.dimension, **write_text_graph(encoder, folder)}
    write_text_atomically(folder / EXPORTED_SETTINGS, json.dumps(settings) + "\n")
    complete_sources(model)
    model.config.save_pretrained(folder)
    write_licence(model, folder)
    processor.save_pretrained(folder)
    graphs: Any = ExportedModel(folder, model.config)
    exported, images = ExportedDualEncoder(graphs, processor), encoder.image_inputs(pictures(3))
    differences = [
        encoder.embed_images(images) - exported.embed_images(images),
        encoder.embed_texts(encoder.text_inputs(MORE_TEXTS)) - exported.embed_texts(exported.text_inputs(MORE_TEXTS)),
    ]
    difference = float(torch.cat(differences).abs().max())  # propagates NaN
    if not difference <= TOLERANCE:
        raise UnexportableError(f"The graphs differ from the model by {difference:.1e}; {TOLERANCE:.0e} is allowed.")
    return difference


@torch.no_grad()
def write_image_graph(encoder: DualEncoder, folder: Path) -> None:
    write_tower(encoder.model, "get_image_features", encoder.image_inputs(pictures(2)), folder / "image.onnx", [0])


@torch.no_grad()
def write_text_graph(encoder: DualEncoder, folder: Path) -> dict[str, Any]:
    """Writes the graph of texts; returns the maximum number of tokens, and whether all texts are padded to it."""
    file, method = folder / "text.onnx", "get_text_features"
    if encoder.padding == "longest":
        with suppress(UnexportableError):  # the number of steps may depend on the length
            write_tower(encoder.model, method, encoder.text_inputs(TEXTS), file, [0, 1])
            return {"longest_text": min(encoder.longest_text, MAX_LENGTH), "fixed_length": False}
    longest = min(encoder.longest_text, MAX_FIXED_LENGTH)
    padding = {"padding": "max_length", "truncation": True, "max_length": longest}
    texts = encoder.processor.tokenizer(list(TEXTS), return_tensors="pt", **padding)
    write_tower(encoder.model, method, texts, file, [0])
    return {"longest_text": longest, "fixed_length": True}


def write_tower(
    model: Any, method: str, inputs: Mapping[str, torch.Tensor], path: Path, varying: Sequence[int]
) -> None:
    """Writes the graph of a method, with the inputs for which it has a parameter."""

    def features(model: Any, **inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        outputs = getattr(model, method)(**inputs)
        return {"features": getattr(outputs, "pooler_output", outputs)}

    parameters = signature(getattr(model, method)).parameters
    taken = {name: value for name, value in inputs.items() if name in parameters}
    write_graph(model, features, taken, path, dict.fromkeys(varying, Dim.DYNAMIC))


def pictures(number: int) -> list[Image.Image]:
    random = np.random.RandomState(number)
    return [Image.fromarray(random.randint(0, 256, (48, 64, 3)).astype(np.uint8)) for _ in range(number)]
