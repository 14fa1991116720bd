"""Runs an exported captioner with only NumPy and ONNX Runtime; images also need Pillow.

This file is in the folder of the exported files and does not need the package that wrote them:

```bash
python captioner.py photo.jpg another.png --num-beams 3
```

```python
from captioner import ExportedCaptioner
captioner = ExportedCaptioner("folder of the exported files")
captioner.caption(images=["photo.jpg", "another.png"], num_beams=3)
captioner.caption(visual_features=[...], visual_boxes=[...])     # captioner of features
```

`captioner.json` describes the inputs of the files and the decoding of captions.
"""

import argparse
import json
import os
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

SETTINGS = "captioner.json"
NEVER = -1.0e9
"""Score of excluded candidates, as in transformers' beam search."""
PROVIDERS = ("CUDAExecutionProvider", "CPUExecutionProvider")
Graph = Callable[[Mapping[str, np.ndarray]], dict[str, np.ndarray]]


class Encoded(NamedTuple):
    """Encoded images."""

    visual: dict[str, np.ndarray]  # visual inputs of the decoder
    cache: dict[str, np.ndarray]  # initial cache, before the first word


class ExportedCaptioner:
    """Captions images with an exported captioner; `folder` is that of this file by default, `opens` opens a graph."""

    def __init__(
        self,
        folder: str | Path | None = None,
        num_threads: int | None = None,
        opens: Callable[[Path, int | None], Graph] | None = None,
    ):
        folder = Path(__file__).parent if folder is None else Path(folder)
        settings = json.loads((folder / SETTINGS).read_text(encoding="utf-8"))
        self.settings: dict[str, Any] = settings
        self.inputs: list[str] = settings["inputs"]
        self.decoding: dict[str, Any] = settings["decoding"]
        self.words = Words(folder, settings["words"])
        opens = load_graph if opens is None else opens
        self.encoder, self.decoder = (opens(folder / settings[part], num_threads) for part in ("encoder", "decoder"))

    def caption(
        self, images: Any = None, *, num_beams: int | None = None, max_new_tokens: int | None = None, **arrays: Any
    ) -> list[str]:
        """Captions a batch of images (paths or PIL images); one beam means greedy decoding.

        A captioner of features needs `visual_features`, one array `(num_regions, feature_dimension)` per image or a
        batch `(B, N, D)` with `attention_mask` `(B, N)`, 1 = real; and `visual_boxes` in the same form, `x1, y1, x2,
        y2` within [0, 1].
        """
        encoded = self.encode(self.prepare(images, **arrays))
        return self.words.decode(self.generate(encoded, num_beams=num_beams, max_new_tokens=max_new_tokens))

    def prepare(self, images: Any = None, **arrays: Any) -> dict[str, np.ndarray]:
        """Returns the inputs of the encoder; see [`caption`] for the arguments."""
        if images is not None and "pixel_values" in self.inputs:
            arrays["pixel_values"] = np.stack([pixels_of(image, self.settings["image"]) for image in images])
        inputs = {name: array for name, array in arrays.items() if name in self.inputs and array is not None}
        if "attention_mask" not in inputs and "visual_features" in inputs:
            inputs["attention_mask"] = [np.ones(len(rows)) for rows in inputs["visual_features"]]
        if self.settings["square_grids"] and "visual_boxes" not in inputs and "visual_features" in inputs:
            inputs["visual_boxes"] = [square_grid(len(rows)) for rows in inputs["visual_features"]]
        return {
            name: padded(rows, np.int64 if name == "attention_mask" else np.float32) for name, rows in inputs.items()
        }

    def generate(
        self, encoded: Encoded, *, num_beams: int | None = None, max_new_tokens: int | None = None
    ) -> np.ndarray:
        """Returns the ids of captions, int64 `(B, length)`, with the start token and padding after the end."""
        beams = num_beams or self.decoding["num_beams"]
        longest = max_new_tokens or self.decoding["max_new_tokens"]
        search = self.greedy if beams == 1 else partial(self.beam_search, beams)
        return search(longest, encoded.visual, encoded.cache)

    def encode(self, inputs: Mapping[str, np.ndarray]) -> Encoded:
        """Encodes images from the inputs of [`prepare`]."""
        mask = {"attention_mask": inputs["attention_mask"]} if "attention_mask" in inputs else {}
        encoded = self.encoder(inputs)
        visual = {name: array for name, array in encoded.items() if name.startswith("visual_")} | mask
        num_images = len(visual["visual_keys_0"])
        cache = {
            f"past_{kind}_{layer}": np.zeros((num_images, 1, heads, 0, channels), dtype=np.float32)
            for layer, (heads, channels) in enumerate(self.settings["cache"])
            for kind in ("keys", "values")
        }
        return Encoded(visual, cache)

    def step(
        self, tokens: np.ndarray, visual: Mapping[str, np.ndarray], cache: Mapping[str, np.ndarray]
    ) -> tuple[np.ndarray, dict[str, np.ndarray]]:
        """Returns log-probabilities `(B, C, vocab_size)` after the last tokens `(B, C)`, and the extended cache."""
        outputs = self.decoder({"input_ids": tokens, **visual, **cache})
        scores = outputs.pop("log_probabilities")
        return scores, {f"past_{name}": array for name, array in outputs.items()}

    def log_probabilities(self, encoded: Encoded, ids: np.ndarray) -> np.ndarray:
        """Returns the log-probabilities `(B, length, vocab_size)` of the token after each of `ids` `(B, length)`."""
        (visual, cache), step_scores = encoded, []
        for tokens in ids.T:
            scores, cache = self.step(tokens[:, None], visual, cache)
            step_scores.append(scores[:, 0])
        return np.stack(step_scores, axis=1)

    def greedy(self, longest: int, visual: Mapping[str, np.ndarray], cache: dict[str, np.ndarray]) -> np.ndarray:
        """Decodes greedily."""
        ends, padding = self.decoding["eos_token_ids"], self.decoding["pad_token_id"]
        tokens = np.full((len(visual["visual_keys_0"]), 1), self.decoding["decoder_start_token_id"], dtype=np.int64)
        written, ended = [tokens], np.zeros(tokens.shape, dtype=bool)
        while len(written) <= longest and not ended.all():
            scores, cache = self.step(tokens, visual, cache)
            scores[..., self.decoding["suppress_tokens"]] = -np.inf
            tokens = np.where(ended, padding, scores.argmax(-1))
            ended |= is_one_of(tokens, ends)
            written.append(tokens)
        return np.concatenate(written, axis=1)

    def beam_search(
        self, beams: int, longest: int, visual: Mapping[str, np.ndarray], cache: dict[str, np.ndarray]
    ) -> np.ndarray:
        """Searches like `generate()` of transformers 5; `finished` and `running` captions are sorted by score."""
        ends, padding = self.decoding["eos_token_ids"], self.decoding["pad_token_id"]
        penalty, stop_early = self.decoding["length_penalty"], self.decoding["early_stopping"]
        compete = self.decoding["finished_beams"] == "compete"
        num_images = len(visual["visual_keys_0"])
        running = np.full((num_images, 1, longest + 1), padding, dtype=np.int64)
        running[:, :, 0] = self.decoding["decoder_start_token_id"]
        running_scores = np.zeros((num_images, 1), dtype=np.float32)
        finished = np.repeat(running, beams, axis=1)
        scores = np.full((num_images, beams), NEVER, dtype=np.float32)
        is_finished = np.zeros((num_images, beams), dtype=bool)
        open_images = np.ones((num_images, 1), dtype=bool)
        kept = beams * (2 if compete else max(2, 1 + len(ends)))
        for length in range(1, longest + 1):
            following, cache = self.step(running[:, :, length - 1], visual, cache)
            following[..., self.decoding["suppress_tokens"]] = -np.inf
            if compete:  # a finished caption continues with padding, at no cost, and competes with the others
                has_ended = is_one_of(running[:, :, 1:], ends).any(-1)
                following[has_ended] = -np.inf
                following[has_ended, padding] = 0
            totals = running_scores[:, :, None] + following
            best_totals, places = largest(totals.reshape(num_images, -1), kept)
            origins, words = np.divmod(places, totals.shape[-1])
            candidates = take_captions(running, origins)
            candidates[:, :, length] = words
            ended = is_one_of(words, [] if compete else ends) | (length == longest)

            running_scores, order = largest(best_totals + NEVER * ended.astype(np.float32), beams)
            running, origins = take_captions(candidates, order), take_captions(origins, order)

            new = ended & (np.arange(kept) < beams)
            final = best_totals / np.float32(length**penalty)
            full = is_finished.all(-1, keepdims=True) & (stop_early is True)
            final += NEVER * (full | ~open_images | ~new).astype(np.float32)
            merged = np.concatenate([finished, candidates], axis=1)
            scores, order = largest(np.concatenate([scores, final], axis=1), beams)
            finished = take_captions(merged, order)
            is_finished = take_captions(np.concatenate([is_finished, new], axis=1), order)

            hoped = longest if stop_early == "never" and penalty > 0 else length
            best = running_scores[:, :1] / np.float32(hoped**penalty)
            worst = np.where(is_finished, scores.min(-1, keepdims=True), NEVER)
            open_images &= (best > worst).any(-1, keepdims=True)
            if not open_images.any() or (is_finished.all() and stop_early is True) or ended.all():
                break
            cache = {name: take_captions(array, origins) for name, array in cache.items()}
        return finished[:, 0]


class Words:
    """Decodes ids with the `vocabulary` of whole words in the settings, or else with `tokenizer.json`."""

    def __init__(self, folder: Path, settings: Mapping[str, Any]):
        self.special = frozenset(settings["special_ids"])
        self.vocabulary: list[str] | None = settings["vocabulary"]
        if self.vocabulary is None:
            from tokenizers import Tokenizer

            self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))

    def decode(self, ids: np.ndarray) -> list[str]:
        """Returns the text of captions `(B, length)`."""
        if self.vocabulary is None:
            return [self.tokenizer.decode(row) for row in ids.tolist()]
        return [" ".join(self.vocabulary[token] for token in row if token not in self.special) for row in ids.tolist()]


def load_graph(
    path: Path,
    num_threads: int | None = None,
    providers: Sequence[str] = PROVIDERS,
    weights: Mapping[str, np.ndarray] | None = None,
) -> Graph:
    """Returns a function, from arrays by name to arrays by name, that runs the graph in a file with added weights."""
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # from 1.29 on, it sends telemetry by default
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    # NumPy works between short steps: threads that spin while waiting would block its cores.
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    if num_threads is not None:
        options.intra_op_num_threads = num_threads
    if weights:
        values = [onnxruntime.OrtValue.ortvalue_from_numpy(array) for array in weights.values()]
        options.add_external_initializers(list(weights), values)
    available = [name for name in providers if name in onnxruntime.get_available_providers()]
    session = onnxruntime.InferenceSession(str(path), options, providers=available)
    names = [output.name for output in session.get_outputs()]
    return lambda inputs: dict(zip(names, session.run(names, dict(inputs)), strict=True))


def padded(arrays: Sequence[Any], dtype: Any) -> np.ndarray:
    """Joins arrays of unequal length into one, padded with zeros."""
    rows = [np.asarray(array) for array in arrays]
    batch = np.zeros((len(rows), max(map(len, rows)), *rows[0].shape[1:]), dtype=dtype)
    for place, row in zip(batch, rows, strict=True):
        place[: len(row)] = row
    return batch


def square_grid(number: int) -> np.ndarray:
    """Returns the boxes `(number, 4)` of the cells of a square grid over the image, row by row."""
    side = round(number**0.5)
    if side * side != number:
        raise ValueError(f"{number} visual tokens are not a square grid; give their visual_boxes.")
    row, column = np.divmod(np.arange(number), side)
    return (np.stack([column, row, column + 1, row + 1], axis=-1) / side).astype(np.float32)


def is_one_of(ids: np.ndarray, few: Sequence[int]) -> np.ndarray:
    """Same as `np.isin`, but ten times as fast for a few ids."""
    return (ids[..., None] == np.asarray(few, dtype=ids.dtype)).any(-1)


def take_captions(array: np.ndarray, order: np.ndarray) -> np.ndarray:
    """Selects captions `(B, K, ...)` by the indices `order` `(B, K)` among those of each image `(B, C, ...)`."""
    return array[np.arange(len(array))[:, None], order]


def largest(scores: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """Returns the largest scores of each row in descending order, and their indices."""
    places = np.argpartition(-scores, count - 1, axis=-1)[:, :count]
    chosen = np.take_along_axis(scores, places, axis=-1)
    order = np.argsort(-chosen, axis=-1, kind="stable")
    return np.take_along_axis(chosen, order, axis=-1), np.take_along_axis(places, order, axis=-1)


def pixels_of(image: Any, settings: Mapping[str, Any]) -> np.ndarray:
    """Preprocesses an image: upright, on white, resized and normalized, `(3, height, width)`."""
    from PIL import Image, ImageOps

    image = image if isinstance(image, Image.Image) else Image.open(image)
    image = ImageOps.exif_transpose(image)
    if "transparency" in image.info or image.mode in ("LA", "PA", "RGBA"):
        image = image.convert("RGBA")
        image = Image.alpha_composite(Image.new("RGBA", image.size, (255, 255, 255, 255)), image)
    image = image.convert("RGB").resize((settings["width"], settings["height"]), settings["resample"])
    pixels = np.moveaxis(np.asarray(image), -1, 0)
    if settings["flip_channel_order"]:
        pixels = pixels[::-1]
    scaled = (np.arange(256) * settings["rescale_factor"]).astype(np.float32)  # the 256 values of a pixel
    mean, deviation = (np.asarray(settings[name], dtype=np.float32)[:, None] for name in ("mean", "std"))
    normalized = np.empty(pixels.shape, np.float32)
    for values, channel, out in zip((scaled - mean) / deviation, pixels, normalized, strict=True):
        np.take(values, channel, out=out, mode="clip")  # the mode that needs no buffer
    return normalized


Captioner = ExportedCaptioner  # its former name, kept for a release


def main() -> None:
    parser = argparse.ArgumentParser(description="Print a caption for each image, after its name and a tab.")
    files = "image files; for a captioner of features, .npz files with visual_features, visual_boxes"
    parser.add_argument("images", nargs="+", help=files)
    parser.add_argument("--num-beams", type=int, help="number of beams (default: the model's)")
    parser.add_argument("--max-new-tokens", type=int, help="maximum tokens of a caption (default: the model's)")
    parser.add_argument("--num-threads", type=int, help="CPU threads (default: ONNX Runtime's choice)")
    parser.add_argument("--batch-size", type=int, default=16, help="batch size (%(default)s)")
    options = parser.parse_args()
    captioner = ExportedCaptioner(num_threads=options.num_threads)
    for start in range(0, len(options.images), options.batch_size):
        names = options.images[start : start + options.batch_size]
        if "pixel_values" in captioner.inputs:
            inputs = captioner.prepare(names)
        else:
            rows = [dict(np.load(name)) for name in names]
            inputs = captioner.prepare(**{name: [row[name] for row in rows] for name in rows[0]})
        ids = captioner.generate(
            captioner.encode(inputs), num_beams=options.num_beams, max_new_tokens=options.max_new_tokens
        )
        for name, caption in zip(names, captioner.words.decode(ids), strict=True):
            print(f"{name}\t{caption}", flush=True)


if __name__ == "__main__":
    main()
