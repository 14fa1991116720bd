"""The folder of an exported captioner: two graphs, their settings, and the program captioner.py."""

import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import GenerationConfig, PreTrainedModel

from ..io.files import write_text_atomically
from ..io.weight_sources import FIELD, complete_sources, write_licence
from ..models.captioning import CaptioningForConditionalGeneration
from . import captioner as reader
from .formats import FORMATS, UnexportableError, write_graph
from .graphs import (
    DecoderGraph,
    EncoderGraph,
    decoder_inputs,
    dynamic_shapes,
    encoder_inputs,
    number_of_regions,
)

SEARCHED = {
    "max_new_tokens",
    "max_length",
    "num_beams",
    "length_penalty",
    "early_stopping",
    "bos_token_id",
    "eos_token_id",
    "pad_token_id",
    "decoder_start_token_id",
    "suppress_tokens",
}
"""Settings of `generate()` that exported captioners support."""
WITHOUT_EFFECT = {
    "transformers_version",
    "_from_model_config",
    "use_cache",
    "cache_implementation",
    "return_dict_in_generate",
    "output_attentions",
    "output_hidden_states",
    "output_scores",
    "output_logits",
}
NEEDED = {"do_resize": True, "do_rescale": True, "do_normalize": True, "do_convert_rgb": True}


def write_exported_captioner(
    model: PreTrainedModel, processor: Any, folder: Path, format_name: str = "onnx", int8: bool = False
) -> None:
    """Exports a captioner, with the program captioner.py; see [`write_captioner_graphs`]."""
    write_captioner_graphs(model, processor, folder, format_name, int8)
    shutil.copyfile(reader.__file__, folder / Path(reader.__file__).name)
    write_licence(model, folder)
    processor.tokenizer.backend_tokenizer.save(str(folder / "tokenizer.json"))


def write_captioner_graphs(
    model: PreTrainedModel, processor: Any, folder: Path, format_name: str = "onnx", int8: bool = False
) -> None:
    """Writes the graphs of a captioner and their settings.

    Args:
        model: a captioner on the CPU, in evaluation mode.
        processor: the model's.
        folder: an empty one.
        format_name: one of `formats.FORMATS`.
        int8: quantizes linear layers; of `"onnx"` alone.

    Raises:
        UnexportableError: the captioner, its image processor or its settings of `generate()` have no exported form.
    """
    if not isinstance(model, CaptioningForConditionalGeneration):
        raise UnexportableError(
            f"{type(model).__name__} is not built as this package's captioners are; it has no export."
        )
    config: Any = model.config
    image = image_settings(model, processor)
    tokenizer: Any = processor.tokenizer
    decoding = decoding_settings(model)
    suffix = FORMATS[format_name].suffix
    regions_vary = image is None and number_of_regions(config) is None
    if regions_vary and getattr(config, "grid_position_embedding", False):
        raise UnexportableError(
            "This RSTNet takes grids of any size and places cells by their order, which is not exported; set grid_size "
            "in its configuration."
        )
    complete_sources(model)
    with eager_attention(model):
        encoded = encoder_inputs(model, None if image is None else (image["height"], image["width"]))
        decoded = decoder_inputs(model, encoded)
        for name, graph, inputs in (("encoder", EncoderGraph, encoded), ("decoder", DecoderGraph, decoded)):
            shapes = dynamic_shapes(inputs, regions_vary)
            write_graph(graph(model).eval(), inputs, shapes, folder / name, format_name, int8)
    settings = {
        "model_type": model.config.model_type,
        "format": format_name,
        "int8": int8,
        "encoder": f"encoder{suffix}",
        "decoder": f"decoder{suffix}",
        "inputs": list(encoded),
        "square_grids": image is None and config.takes_square_grids,
        "cache": [[keys.shape[2], keys.shape[4]] for name, keys in decoded.items() if name.startswith("past_keys")],
        "decoding": decoding,
        "words": word_settings(tokenizer),
        "image": image,
        FIELD: getattr(config, FIELD, []),
        "versions": {"transformers": transformers.__version__, "torch": torch.__version__},
    }
    write_text_atomically(folder / reader.SETTINGS, json.dumps(settings, ensure_ascii=False, indent=1) + "\n")


@contextmanager
def eager_attention(model: PreTrainedModel) -> Iterator[None]:
    """Sets eager attention inside the `with` block: plain operations, which every runtime has."""
    before = model.config._attn_implementation
    model.set_attn_implementation("eager")
    try:
        yield
    finally:
        model.set_attn_implementation(before)


def decoding_settings(model: PreTrainedModel) -> dict[str, Any]:
    """Returns the settings of `generate()` for `captioner.json`."""
    given: Any = model.generation_config
    default = GenerationConfig().to_dict()
    changed = {name for name, value in given.to_diff_dict().items() if value not in (None, default.get(name))}
    unknown = sorted(changed - SEARCHED - WITHOUT_EFFECT)
    if unknown:
        raise UnexportableError(
            f"generation_config.json sets {unknown[0]}, which exported captioners do not know; remove it there."
        )
    config: Any = model.config

    def chosen(name: str) -> Any:
        value = getattr(given, name)
        return getattr(config, name) if value is None else value

    ends = chosen("eos_token_id")
    positions = getattr(config, "position_embedding", None) == "table"
    return {
        "decoder_start_token_id": chosen("decoder_start_token_id"),
        "eos_token_ids": [ends] if isinstance(ends, int) else list(ends),
        "pad_token_id": chosen("pad_token_id"),
        "num_beams": given.num_beams or 1,
        "max_new_tokens": given.max_new_tokens or (given.max_length or 20) - 1,
        "most_tokens": config.max_position_embeddings if positions else None,
        "length_penalty": 1.0 if given.length_penalty is None else given.length_penalty,
        "early_stopping": bool(given.early_stopping) if given.early_stopping != "never" else "never",
        "suppress_tokens": list(given.suppress_tokens or []),
        "finished_beams": getattr(config, "finished_beams", "aside"),
    }


def word_settings(tokenizer: Any) -> dict[str, Any]:
    """Returns the vocabulary, None if words consist of pieces."""
    words: list[str] = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    special = sorted(set(tokenizer.all_special_ids))
    plain = [word for index, word in enumerate(words) if index not in special]
    is_plain = tokenizer.decode(range(len(words)), skip_special_tokens=True) == " ".join(plain)
    return {"special_ids": special, "vocabulary": words if is_plain else None}


def image_settings(model: PreTrainedModel, processor: Any) -> dict[str, Any] | None:
    """Returns the preprocessing of images; `None` for a captioner of features."""
    vision: Any = model.config.vision_config
    if vision is None:
        return None
    if vision.kind != "grid":
        raise UnexportableError(
            "The vision encoder of this captioner is a detection model, whose number of regions differs from image to "
            "image, and is not exported; export the captioner of its features."
        )
    image_processor = processor.image_processor
    if type(image_processor).__name__ != "CaptioningImageProcessor":
        raise UnexportableError(
            f"Images are prepared by {type(image_processor).__name__}, which exported files cannot repeat; use a "
            "CaptioningImageProcessor."
        )
    size: Any = image_processor.size
    others = [name for name, value in NEEDED.items() if getattr(image_processor, name) != value]
    others += [name for name in ("do_center_crop", "pad_size") if getattr(image_processor, name, None)]
    if not (size.get("height") and size.get("width")):
        others.append("size")
    if others:
        raise UnexportableError(
            f"Exported captioners resize images to one height and width and normalize them; {others[0]} of the image "
            f"processor is {getattr(image_processor, others[0])!r:.80}: change it in preprocessor_config.json."
        )
    return {
        "height": size["height"],
        "width": size["width"],
        "resample": int(image_processor.resample),
        "rescale_factor": float(image_processor.rescale_factor),
        "flip_channel_order": bool(image_processor.do_flip_channel_order),
        "mean": list(image_processor.image_mean),
        "std": list(image_processor.image_std),
    }
