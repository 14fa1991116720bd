"""Folders of exported models: a captioner with captioner.py, compared with its model, and a dual encoder."""

import json
import operator
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from inspect import signature
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from datasets import Dataset
from PIL import Image
from torch import nn
from torch.export import Dim
from transformers import GenerationConfig, PreTrainedModel

from ..data.collator import visual_arguments
from ..guests.dual_encoders import EXPORTED_SETTINGS, DualEncoder, ExportedDualEncoder, ExportedModel, dual_encoder_of
from ..io.files import write_text_atomically
from ..io.packaged import WEIGHTS_FROM, complete_sources, write_licence
from ..models.captioning import CaptioningForConditionalGeneration
from . import captioner as reader
from . import graphs
from .captioner import Captioner
from .graphs import UnexportableError, eager_attention, write_graph

SEARCHED = (
    *("max_new_tokens", "max_length", "num_beams", "length_penalty", "early_stopping", "suppress_tokens"),
    *("bos_token_id", "eos_token_id", "pad_token_id", "decoder_start_token_id"),
)
"""Settings of `generate()` that exported captioners support."""
WITHOUT_EFFECT = ("_", "cache_", "output_", "return_", "transformers_version", "use_cache")
"""Beginnings of names of settings that change no caption."""
NEEDED = {"do_resize": True, "do_rescale": True, "do_normalize": True, "do_convert_rgb": True}
"""Settings of image processors that exported captioners repeat."""
MAX_DIFFERENCE = 1e-3  # of log-probabilities; the rounding of sums in runtimes differs by some 1e-5
TOLERANCE = 1e-4  # of an embedding's numbers
MAX_LENGTH = 4096
MAX_FIXED_LENGTH = 64  # tokens of a text, where every text is padded to the longest
TEXTS = ("a photograph of a dog", "two")
MORE_TEXTS = ("a", "a man and a woman are standing in front of a building", "it")


def write_exported_captioner(model: PreTrainedModel, processor: Any, folder: Path) -> None:
    """Exports a captioner on the CPU, in evaluation mode, with the program captioner.py, into an empty folder."""
    write_captioner_graphs(model, processor, folder)
    shutil.copyfile(reader.__file__, folder / Path(reader.__file__).name)
    write_licence(model, folder)
    processor.tokenizer.backend_tokenizer.save(str(folder / "tokenizer.json"))


def write_captioner_graphs(model: PreTrainedModel, processor: Any, folder: Path) -> None:
    if not isinstance(model, CaptioningForConditionalGeneration):
        raise UnexportableError(f"{type(model).__name__} is no captioner of this package; it has no export.")
    config: Any = model.config
    image, decoding = image_settings(model, processor), decoding_settings(model)
    regions_vary = image is None and graphs.number_of_regions(config) is None
    if regions_vary and getattr(config, "grid_position_embedding", False):
        raise UnexportableError("This RSTNet takes grids of any size; set grid_size in its configuration.")
    complete_sources(model)
    with eager_attention(model):
        encoded = graphs.encoder_inputs(model, None if image is None else (image["height"], image["width"]))
        decoded = graphs.decoder_inputs(model, encoded)
        parts = ("encoder", graphs.EncoderGraph(model), encoded), ("decoder", graphs.DecoderGraph(model), decoded)
        for name, graph, inputs in parts:
            shapes = graphs.dynamic_shapes(inputs, regions_vary)
            write_graph(graph.eval(), inputs, shapes, folder / f"{name}.onnx")
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
        WEIGHTS_FROM: getattr(config, WEIGHTS_FROM, []),
        "versions": {"transformers": transformers.__version__, "torch": torch.__version__},
    }
    write_text_atomically(folder / reader.SETTINGS, json.dumps(settings, ensure_ascii=False, indent=1) + "\n")


def decoding_settings(model: PreTrainedModel) -> dict[str, Any]:
    """Returns the settings of `generate()` for `captioner.json`."""
    given: Any = model.generation_config
    config: Any = model.config
    default = GenerationConfig().to_dict()
    changed = {name for name, value in given.to_diff_dict().items() if value not in (None, default.get(name))}
    unknown = sorted(name for name in changed.difference(SEARCHED) if not name.startswith(WITHOUT_EFFECT))
    if unknown:
        raise UnexportableError(
            f"generation_config.json sets {unknown[0]}, which exported captioners do not know; remove it there."
        )
    names = ("decoder_start_token_id", "eos_token_id", "pad_token_id")
    start, ends, padding = (getattr(config if getattr(given, name) is None else given, name) for name in names)
    return {
        "decoder_start_token_id": start,
        "eos_token_ids": [ends] if isinstance(ends, int) else list(ends),
        "pad_token_id": padding,
        "num_beams": given.num_beams or 1,
        "max_new_tokens": given.max_new_tokens or (given.max_length or 20) - 1,
        "most_tokens": config.max_position_embeddings if getattr(config, "position_embedding", "") == "table" else None,
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
    image_processor = processor.image_processor
    if vision.kind != "grid" or type(image_processor).__name__ != "CaptioningImageProcessor":
        images = f"The vision encoder makes {vision.kind} of images of a {type(image_processor).__name__}"
        raise UnexportableError(f"{images}, and exported files a grid of those of a CaptioningImageProcessor.")
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
    """Captions and log-probabilities of an exported captioner beside those of its model."""

    images: int
    other_captions: dict[int, int]  # by the number of beams
    difference: float  # largest of log-probabilities, along the model's captions

    @property
    def is_same(self) -> bool:
        return self.difference <= MAX_DIFFERENCE and not any(self.other_captions.values())


def compare(
    model: Any, processor: Any, exported: Captioner, rows: Dataset, beams: Sequence[int] = (1, 3), batch_size: int = 16
) -> Comparison:
    """Captions rows of the feature contract, as a captioner on the CPU reads them, with it and with its export."""
    others, difference = dict.fromkeys(beams, 0), 0.0
    for start in range(0, len(rows), batch_size):
        given = visual_arguments([rows[index] for index in range(start, min(start + batch_size, len(rows)))])
        batch, inputs = processor(**given), exported.prepare(**given)
        for width in beams:
            with torch.inference_mode():
                expected = processor.batch_decode(model.generate(**batch, num_beams=width), skip_special_tokens=True)
            captions = exported.words.decode(exported.generate(inputs, num_beams=width))
            others[width] += sum(map(operator.ne, captions, expected))
        difference = float(np.maximum(difference, largest_difference(model, batch, exported, inputs)))  # keeps NaN
    return Comparison(len(rows), others, difference)


def largest_difference(
    model: Any, batch: Mapping[str, torch.Tensor], exported: Captioner, inputs: Mapping[str, np.ndarray]
) -> float:
    """Returns the largest difference between log-probabilities along the model's greedy captions, step by step."""
    with torch.inference_mode():
        output = model.generate(**batch, num_beams=1, return_dict_in_generate=True, output_logits=True)
        scores = torch.stack(output.logits, dim=1).float().log_softmax(-1).numpy()
    return float(np.abs(exported.log_probabilities(inputs, output.sequences[:, :-1].numpy()) - scores).max())


class Tower(nn.Module):
    def __init__(self, model: Any, features: str) -> None:
        super().__init__()
        self.model, self.features = model, features

    def forward(self, **inputs: torch.Tensor) -> dict[str, torch.Tensor]:
        outputs = getattr(self.model, self.features)(**inputs)
        return {"features": getattr(outputs, "pooler_output", outputs)}


@torch.no_grad()
def write_exported_dual_encoder(model: PreTrainedModel, processor: Any, folder: Path) -> float:
    """Exports a dual encoder on the CPU as two graphs; returns the largest difference of their embeddings.

    A text encoder that runs word by word, such as MHSAN's, gets texts that are padded to the longest one.
    """
    encoder = dual_encoder_of(model, processor)
    if encoder.image_processor is None:
        raise UnexportableError("This dual encoder has no vision encoder, so it cannot embed the images of an index.")
    inputs = taken(model.get_image_features, encoder.image_inputs(pictures(2)))
    shapes = {name: {0: Dim("images")} for name in inputs}
    with eager_attention(model):
        write_graph(Tower(model, "get_image_features").eval(), inputs, shapes, folder / "image.onnx")
    fixed_length = write_text_graph(encoder, folder)
    longest = min(encoder.longest_text, MAX_FIXED_LENGTH if fixed_length else MAX_LENGTH)
    settings = {"dimension": encoder.dimension, "longest_text": longest, "fixed_length": fixed_length}
    write_text_atomically(folder / EXPORTED_SETTINGS, json.dumps(settings) + "\n")
    complete_sources(model)
    model.config.save_pretrained(folder)
    write_licence(model, folder)
    processor.save_pretrained(folder)
    of_graphs: Any = ExportedModel(folder, model.config)
    encoders = encoder, ExportedDualEncoder(of_graphs, processor)
    images = [other.embed_images(other.image_inputs(pictures(3))) for other in encoders]
    texts = [other.embed_texts(other.text_inputs(MORE_TEXTS)) for other in encoders]
    differences = [(own - exported).abs().max() for own, exported in (images, texts)]
    difference = float(torch.stack(differences).max())  # keeps NaN
    if not difference <= TOLERANCE:
        raise UnexportableError(
            f"The graphs differ from the model by {difference:.1e}, and {TOLERANCE:.0e} is allowed."
        )
    return difference


@torch.no_grad()
def write_text_graph(encoder: DualEncoder, folder: Path) -> bool:
    """Writes the graph of texts; returns whether it takes texts of one length only."""
    model, longest = encoder.model, min(encoder.longest_text, MAX_LENGTH)
    graph = Tower(model, "get_text_features").eval()
    texts = taken(model.get_text_features, encoder.text_inputs(TEXTS))
    varying = {0: Dim("texts"), 1: Dim("length", min=2, max=longest)}
    with eager_attention(model):
        if encoder.padding == "longest":
            try:
                write_graph(graph, texts, dict.fromkeys(texts, varying), folder / "text.onnx")
                return False
            except UnexportableError:  # its steps depend on the length
                pass
        tokenizer, longest = encoder.processor.tokenizer, min(longest, MAX_FIXED_LENGTH)
        padded = tokenizer(list(TEXTS), padding="max_length", truncation=True, max_length=longest, return_tensors="pt")
        texts = taken(model.get_text_features, padded)
        write_graph(graph, texts, {name: {0: Dim("texts")} for name in texts}, folder / "text.onnx")
    return True


def taken(features_of: Any, inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Returns those inputs that a method has a parameter for."""
    return {name: value for name, value in inputs.items() if name in signature(features_of).parameters}


def pictures(number: int) -> list[Image.Image]:
    random = np.random.RandomState(number)
    return [Image.fromarray(random.randint(0, 256, (48, 64, 3)).astype(np.uint8)) for _ in range(number)]
