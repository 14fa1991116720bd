"""The folder of an exported captioner, with graphs, settings and captioner.py, and its comparison with the model."""

import json
import operator
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from datasets import Dataset
from transformers import GenerationConfig, PreTrainedModel

from ..data.collator import visual_arguments
from ..io.files import write_text_atomically
from ..io.weight_sources import FIELD, complete_sources, write_licence
from ..metrics import CaptionMetrics
from ..models.captioning import CaptioningForConditionalGeneration
from . import captioner as reader
from .captioner import Captioner
from .graphs import (
    DecoderGraph,
    EncoderGraph,
    UnexportableError,
    decoder_inputs,
    dynamic_shapes,
    eager_attention,
    encoder_inputs,
    number_of_regions,
    write_graph,
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
"""Settings of image processors that exported captioners repeat."""
MAX_DIFFERENCE = 1e-3
"""Largest allowed difference of log-probabilities; the rounding of sums in runtimes differs by some 1e-5."""
MAX_LOSS = 0.01
"""Largest share of CIDEr-D that an 8-bit captioner may lose."""


def write_exported_captioner(model: PreTrainedModel, processor: Any, folder: Path, int8: bool = False) -> None:
    """Exports a captioner, with the program captioner.py; see [`write_captioner_graphs`]."""
    write_captioner_graphs(model, processor, folder, int8)
    shutil.copyfile(reader.__file__, folder / Path(reader.__file__).name)
    write_licence(model, folder)
    processor.tokenizer.backend_tokenizer.save(str(folder / "tokenizer.json"))


def write_captioner_graphs(model: PreTrainedModel, processor: Any, folder: Path, int8: bool = False) -> None:
    """Writes the graphs of a captioner and their settings.

    Args:
        model: a captioner on the CPU, in evaluation mode.
        processor: the model's.
        folder: an empty one.
        int8: quantizes linear layers.

    Raises:
        UnexportableError: the captioner, its image processor or its settings of `generate()` have no exported form.
    """
    if not isinstance(model, CaptioningForConditionalGeneration):
        raise UnexportableError(
            f"{type(model).__name__} is not built as this package's captioners are; it has no export."
        )
    config: Any = model.config
    image = image_settings(model, processor)
    decoding = decoding_settings(model)
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
            write_graph(graph(model).eval(), inputs, shapes, folder / f"{name}.onnx", int8)
    settings = {
        "model_type": config.model_type,
        "format": "onnx",
        "int8": int8,
        "encoder": "encoder.onnx",
        "decoder": "decoder.onnx",
        "inputs": list(encoded),
        "square_grids": image is None and config.takes_square_grids,
        "cache": [[keys.shape[2], keys.shape[4]] for name, keys in decoded.items() if name.startswith("past_keys")],
        "decoding": decoding,
        "words": word_settings(processor.tokenizer),
        "image": image,
        FIELD: getattr(config, FIELD, []),
        "versions": {"transformers": transformers.__version__, "torch": torch.__version__},
    }
    write_text_atomically(folder / reader.SETTINGS, json.dumps(settings, ensure_ascii=False, indent=1) + "\n")


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


@dataclass
class Comparison:
    """Captions and log-probabilities of an exported captioner beside those of its model.

    Attributes:
        images: number of captioned images.
        other_captions: number of different captions, by the number of beams.
        difference: largest difference of log-probabilities, along the model's captions.
        cider_d: of the model and of the exported captioner, by the number of beams; empty without references.
    """

    images: int
    other_captions: dict[int, int]
    difference: float
    cider_d: dict[int, tuple[float, float]]

    @property
    def is_same(self) -> bool:
        """Whether captions and log-probabilities equal the model's."""
        return self.difference <= MAX_DIFFERENCE and not any(self.other_captions.values())

    def loss(self, beams: int) -> float:
        """Returns the share of CIDEr-D that the export loses, negative for a gain."""
        before, after = self.cider_d[beams]
        return (before - after) / before if before else 0.0

    @property
    def is_as_good(self) -> bool:
        """Whether the export loses at most `MAX_LOSS` of CIDEr-D."""
        return all(self.loss(beams) <= MAX_LOSS for beams in self.cider_d)


def compare(
    model: Any, processor: Any, exported: Captioner, rows: Dataset, beams: Sequence[int] = (1, 3), batch_size: int = 16
) -> Comparison:
    """Captions rows with a model and with its export.

    Args:
        model: a captioner on the CPU.
        processor: the model's.
        exported: the exported captioner.
        rows: of the feature contract, as the model reads them.
        beams: widths of the search.
        batch_size: images captioned together.
    """
    captions: dict[int, list[str]] = {width: [] for width in beams}
    expected: dict[int, list[str]] = {width: [] for width in beams}
    difference = 0.0
    for start in range(0, len(rows), batch_size):
        given = visual_arguments([rows[index] for index in range(start, min(start + batch_size, len(rows)))])
        batch = processor(**given)
        inputs = exported.prepare(**given)
        for width in beams:
            with torch.inference_mode():
                ids = model.generate(**batch, num_beams=width)
            expected[width] += processor.batch_decode(ids, skip_special_tokens=True)
            captions[width] += exported.words.decode(exported.generate(inputs, num_beams=width))
        difference = float(np.maximum(difference, largest_difference(model, batch, exported, inputs)))  # keeps NaN
    cider_d = {}
    if "captions" in rows.column_names:
        metric, references = CaptionMetrics(metrics=["cider_d"]), [list(texts) for texts in rows["captions"]]
        for width in beams:
            before = metric.compute(predictions=expected[width], references=references)["cider_d"]
            after = metric.compute(predictions=captions[width], references=references)["cider_d"]
            cider_d[width] = (before, after)
    others = {width: sum(map(operator.ne, captions[width], expected[width])) for width in beams}
    return Comparison(len(rows), others, difference, cider_d)


def largest_difference(
    model: Any, batch: Mapping[str, torch.Tensor], exported: Captioner, inputs: Mapping[str, np.ndarray]
) -> float:
    """Returns the largest difference between log-probabilities along the model's greedy captions, step by step."""
    with torch.inference_mode():
        output = model.generate(**batch, num_beams=1, return_dict_in_generate=True, output_logits=True)
        scores = torch.stack(output.logits, dim=1).float().log_softmax(-1).numpy()
    of_export = exported.log_probabilities(inputs, output.sequences[:, :-1].numpy())
    return float(np.abs(of_export - scores).max())
