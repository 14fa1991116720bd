"""Speed of this package on a GPU against the alternatives of a user, as a table and a JSON file.

Training steps, self-critical steps, decoding, training from cached features, photographs to captions, extraction,
contrastive training, search and the self-critical step of a BLIP. All models except the packaged captioner have
random weights at the papers' sizes. Times are measured between CUDA events after warming up: median and quartiles;
compared programs take turns. FLOP/s and bytes/s are relative to a large matrix product and a large copy, measured
first; bytes are the operands of all operators, as if none were fused. "Busy" is the share of time in which a kernel or
copy runs.

    python benchmarks/gpu.py --minutes 8 --output gpu.json
    python benchmarks/gpu.py --device cpu --tiny --minutes 3 --output build/gpu.json    # tests the program itself
"""

import argparse
import os
import sys
import tempfile
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")  # so that processes can still be forked after the check
os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import guest_step
import ngsan_step
import numpy as np
import torch
import transformers
from datasets import Dataset
from decoding import unshared_states
from gpu_measuring import PRECISIONS, Bench, Part, Report, Timing, run_parts
from guests import make_captioner
from paired_steps import TrainingStep
from pipeline_batches import write_photos
from self_critical import SelfCriticalStep
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader
from transformers import CompileConfig, GitConfig, GitForCausalLM, pipeline
from transformers.modeling_outputs import Seq2SeqLMOutput
from transformers.utils import logging

from hf_ngsan import MHSANConfig, MHSANModel, NGSANConfig, NGSANForConditionalGeneration
from hf_ngsan.data.collator import IGNORED_LABEL
from hf_ngsan.data.contract import caption_features, with_arrays
from hf_ngsan.data.prepared import Rows, write_rows
from hf_ngsan.extraction import extract_features, list_images, load_vision
from hf_ngsan.extraction.image_list import load_batches
from hf_ngsan.io.packaged import CAPTIONER
from hf_ngsan.io.processes import make_accelerator
from hf_ngsan.loading.models import load_model
from hf_ngsan.loading.pipeline_inputs import Items
from hf_ngsan.models.captioning import shift_tokens_right
from hf_ngsan.models.positions import sinusoids
from hf_ngsan.tasks.captioning import CaptioningConfig, CaptioningTask
from hf_ngsan.training.batches import FeatureCache, MicroBatch
from hf_ngsan.training.loop import TrainingLoop
from hf_ngsan.training.objectives.contrastive import Contrastive, ContrastiveSettings
from hf_ngsan.training.task import Update

WORKERS = min(12, os.cpu_count() or 1)
PHOTO = "pixel_values"


# Ceilings


def ceilings(bench: Bench) -> None:
    """Measures FLOP/s of a large matrix product in each precision, and bytes/s of a large copy, read and written."""
    size = 128 if bench.tiny else 8192
    number = 3 if bench.tiny else 20
    for precision, dtype in PRECISIONS.items():
        with bench.recorded_failure(f"matrix product in {precision}"):
            left, right = (torch.randn(size, size, device=bench.device, dtype=dtype) for _ in range(2))
            bench.steps(partial(torch.matmul, left, right), 3)
            flops = 2 * size**3 / Timing(bench.steps(partial(torch.matmul, left, right), number)).median
            bench.send({"ceiling": precision, "value": flops, "unit": "FLOP/s"})
    source = torch.ones(2**20 if bench.tiny else 2**31, dtype=torch.uint8, device=bench.device)
    target = torch.empty_like(source)
    bench.steps(lambda: target.copy_(source), 3)
    rate = 2 * source.nbytes / Timing(bench.steps(lambda: target.copy_(source), number)).median
    bench.send({"ceiling": "bandwidth", "value": rate, "unit": "bytes/s"})


# Training steps


class TorchCaptioner(nn.Module):
    """SAN built from `torch.nn.Transformer`: regions are encoded once, and repeated for their captions."""

    def __init__(self, config: NGSANConfig) -> None:
        super().__init__()
        self.config = config
        self.input_proj = nn.Linear(config.visual_feature_size, config.hidden_size)
        self.embedding = nn.Embedding(config.vocab_size, config.hidden_size, config.pad_token_id)
        self.dropout = nn.Dropout(config.dropout)
        layers = config.num_hidden_layers
        self.transformer = nn.Transformer(
            config.hidden_size,
            config.num_attention_heads,
            layers,
            layers,
            config.intermediate_size,
            config.dropout,
            batch_first=True,
        )
        self.transformer.encoder.norm = self.transformer.decoder.norm = None
        for module in self.transformer.modules():
            if isinstance(module, nn.MultiheadAttention):
                module.dropout = config.attention_dropout
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size)

    def forward(
        self, visual_features: torch.Tensor, visual_boxes: Any, attention_mask: torch.Tensor, labels: torch.Tensor
    ) -> Seq2SeqLMOutput:
        config, length = self.config, labels.shape[1]
        is_padding = attention_mask == 0
        regions = self.dropout(torch.relu(self.input_proj(visual_features)))
        memory = self.transformer.encoder(regions, src_key_padding_mask=is_padding)
        each = len(labels) // len(memory)
        words = shift_tokens_right(labels, config.decoder_start_token_id, config.pad_token_id)
        positions = sinusoids(torch.arange(length, device=labels.device), config.hidden_size)
        states = self.transformer.decoder(
            self.dropout(self.embedding(words) * config.hidden_size**0.5 + positions),
            memory.repeat_interleave(each, dim=0),
            tgt_mask=torch.ones(length, length, dtype=torch.bool, device=labels.device).triu(1),
            tgt_is_causal=True,
            memory_key_padding_mask=is_padding.repeat_interleave(each, dim=0),
        )
        logits = self.lm_head(states)
        loss = functional.cross_entropy(logits.flatten(0, 1).float(), labels.flatten(), ignore_index=IGNORED_LABEL)
        return Seq2SeqLMOutput(loss=loss, logits=logits)


OURS, TORCH = ("SAN", "NG-SAN"), "nn.Transformer"


def training_sizes(bench: Bench) -> Namespace:
    sizes = {"images": 50, "captions": 5, "regions": 36, "words": 17, "feature_size": 2048}
    sizes |= {"hidden_size": 512, "layers": 4, "vocabulary": 9491}
    if bench.tiny:
        sizes |= {"images": 2, "regions": 4, "feature_size": 8, "hidden_size": 32, "layers": 1, "vocabulary": 50}
    return Namespace(**sizes, device=bench.device)


def training_step(bench: Bench, kind: str, precision: str, compiled: bool = False) -> Callable[[], None]:
    sizes = training_sizes(bench)
    step = ngsan_step.training_step("SAN" if kind == TORCH else kind, sizes)
    if kind == TORCH:
        step = TrainingStep(TorchCaptioner(step.model.config), step.batch, bench.device)
    model = step.model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)
    forward = torch.compile(model, backend="eager" if bench.tiny else "inductor", dynamic=False) if compiled else model

    def take() -> None:
        with bench.autocast(precision):
            loss = forward(**step.batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    return take


def training_steps(bench: Bench, compiled: bool = False) -> None:
    """Compares steps of forward, backward and fused Adam; bf16 means autocast, as in the package's trainer."""
    sizes = training_sizes(bench)
    captions = sizes.images * sizes.captions
    end = ", compiled" if compiled else ""
    for precision in PRECISIONS:
        makers = {f"{kind}{end}": partial(training_step, bench, kind, precision, compiled) for kind in (*OURS, TORCH)}
        torch.compiler.reset()
        timings: dict[str, Timing] = {}
        # Compiled steps are measured one by one, because each takes a minute to compile.
        for some in [{name: make} for name, make in makers.items()] if compiled else [makers]:
            timings |= bench.compare(some, precision, captions, "captions", count=not compiled)
        san, ngsan, theirs = (timings.get(f"{kind}{end}") for kind in (*OURS, TORCH))
        if san and ngsan:
            bench.require(f"step of NG-SAN / SAN{end}, {precision}", ngsan.median / san.median, at_most=1.05)
        if san and theirs:
            bench.require(f"speed of SAN / {TORCH}{end}, {precision}", theirs.median / san.median, at_least=1.0)
        if ngsan and theirs:
            bench.note(f"speed of NG-SAN / {TORCH}{end}, {precision}", ratio=theirs.median / ngsan.median)


# Decoding

BATCHES, BEAMS, WORDS = (1, 32, 256), (5, 1), 16


def make_ngsan(bench: Bench, precision: str, batch: int) -> tuple[Any, dict[str, torch.Tensor]]:
    """Returns NG-SAN at the size of the paper's largest captioners (L = 6), and features of images."""
    sizes = {"vocab_size": 9491, "visual_feature_size": 2048, "num_hidden_layers": 6}
    if bench.tiny:
        sizes |= {"vocab_size": 50, "visual_feature_size": 8, "hidden_size": 32, "num_hidden_layers": 1}
    torch.manual_seed(0)
    with torch.device(bench.device):
        model = NGSANForConditionalGeneration(NGSANConfig(**sizes)).eval().to(PRECISIONS[precision])
        corners = torch.rand(batch, 50, 2) / 2
        features = torch.rand(batch, 50, sizes["visual_feature_size"])
    return model, {"visual_features": features, "visual_boxes": torch.cat([corners, corners + 0.3], dim=-1)}


def make_blip(bench: Bench, precision: str, batch: int) -> tuple[Any, dict[str, torch.Tensor]]:
    side, hidden, layers, words = (32, 64, 1, 50) if bench.tiny else (384, 768, 12, 30_519)
    with torch.device(bench.device):
        model, _ = make_captioner(side, hidden, layers, words)
    pixels = torch.randn(batch, 3, side, side, device=bench.device, dtype=PRECISIONS[precision])
    return model.to(PRECISIONS[precision]), {PHOTO: pixels}


def make_git(bench: Bench, precision: str, batch: int) -> tuple[Any, dict[str, torch.Tensor]]:
    config = GitConfig()
    if bench.tiny:
        tiny = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 32}
        config = GitConfig(vision_config={**tiny, "image_size": 32}, **tiny)
    with torch.device(bench.device):
        model = GitForCausalLM(config).eval().to(PRECISIONS[precision])
    side = config.vision_config.image_size
    return model, {PHOTO: torch.randn(batch, 3, side, side, device=bench.device, dtype=PRECISIONS[precision])}


def captioning(
    bench: Bench, make: Callable, precision: str, batch: int, beams: int, compiled: bool = False
) -> Callable[[], torch.Tensor]:
    """Returns a function that captions a batch with `WORDS` words per image, for any weights."""
    words = 4 if bench.tiny else WORDS
    model, inputs = make(bench, precision, batch)
    settings: dict[str, Any] = {"num_beams": beams, "min_new_tokens": words, "max_new_tokens": words}
    if not compiled:
        return lambda: model.generate(**inputs, **settings)
    torch.compiler.reset()  # or a second number of images would be compiled for any number
    expected = model.generate(**inputs, **settings)
    settings["cache_implementation"] = "static"
    if beams > 1:
        compile_later_steps(bench, model)
    elif bench.tiny:
        settings["compile_config"] = CompileConfig(backend="eager", mode=None)
        settings["compile_config"]._compile_all_devices = True
    same = (model.generate(**inputs, **settings) == expected).all(-1).float().mean().item()
    bench.note(f"captions that compiling leaves as they are, {batch} x {beams} beams", share=same)
    return lambda: model.generate(**inputs, **settings)


def compile_later_steps(bench: Bench, model: Any) -> None:
    """Compiles the steps after the first, as `generate()` does in greedy search."""
    plain = model.forward
    how = {"backend": "eager"} if bench.tiny else {"mode": "reduce-overhead"}
    fast = torch.compile(plain, **how)

    def forward(*args: Any, **kwargs: Any) -> Any:
        cache = kwargs.get("cache")
        is_first = cache is None or not cache.is_updated.get(0)
        return (plain if is_first else fast)(*args, **kwargs)

    model.forward = forward


def decoding(bench: Bench, compiled: bool = False) -> None:
    """Compares beam search and greedy search of images; BLIP and GIT include their vision encoders, NG-SAN has none."""
    all_makers = {"NG-SAN": make_ngsan, "BLIP-base": make_blip, "GIT-base": make_git}
    batches = (1, 2) if bench.tiny else BATCHES
    for precision, guests in (("bf16", not compiled), *(() if compiled else (("fp32", False),))):
        for batch in reversed(batches):
            for beams in BEAMS:
                torch.compiler.reset()
                makers = {
                    f"{name}, {'compiled, ' if compiled else ''}{batch} x {beams} beams": partial(
                        captioning, bench, make, precision, batch, beams, compiled
                    )
                    for name, make in all_makers.items()
                    if guests or make is make_ngsan
                }
                options = {"warm_up": 2, "seconds": 1.0, "count": not compiled, "busy": not bench.tiny}
                timings = bench.compare(makers, precision, batch, "images", **options)
                medians = {name.split(",")[0]: timing.median for name, timing in timings.items()}
                if batch == batches[-1] and beams == 5 and {"NG-SAN", "BLIP-base"} <= set(medians):
                    times = medians["BLIP-base"] / medians["NG-SAN"]
                    bench.require(f"images/s of NG-SAN / BLIP-base, {batch} x 5 beams", times, at_least=5.0)


# Self-critical training


def self_critical(bench: Bench) -> None:
    """Compares a step with only sampling and an update, and with transformers' `generate` and a forward pass."""
    sizes = {"images": 50, "samples": 5, "regions": 36, "tokens": 20, "feature_size": 2048}
    sizes |= {"hidden_size": 512, "layers": 4, "vocabulary": 9487}
    if bench.tiny:
        sizes |= {"images": 2, "regions": 4, "tokens": 5, "feature_size": 8, "hidden_size": 32, "layers": 1}
        sizes["vocabulary"] = 50
    step = SelfCriticalStep(Namespace(**sizes, device=bench.device))
    draws = iter(range(10**9))

    works = {
        "self-critical step": lambda: step.full(next(draws)),
        "sampling + update": lambda: step.alone(next(draws)),
        "generate + forward of transformers": lambda: plain_self_critical(step),
    }
    for precision in PRECISIONS:
        with bench.autocast(precision):
            makers = {name: partial(lambda work: work, work) for name, work in works.items()}
            timings = bench.compare(makers, precision, sizes["images"] * sizes["samples"], "samples", seconds=3)
        ours, alone, theirs = (timings.get(name) for name in works)
        if ours and alone:
            bench.require(f"step / (sampling + update), {precision}", ours.median / alone.median, at_most=1.3)
        if ours and theirs:
            bench.note(f"speed / transformers, {precision}", ratio=theirs.median / ours.median)


def plain_self_critical(step: SelfCriticalStep) -> None:
    """Takes a step with plain transformers: states are repeated for each sample, and images encoded twice."""
    model, rows = step.model, step.batch["row_index"].repeat_interleave(step.samples)
    length = {"max_new_tokens": step.policy.max_new_tokens}
    with unshared_states():
        samples = model.generate(**step.visual, do_sample=True, top_k=0, num_return_sequences=step.samples, **length)
    labels = samples[:, 1:]
    with torch.no_grad():
        rewards = step.objective.rewards(labels, rows).view(-1, step.samples)
        advantages = (rewards - rewards.mean(-1, keepdim=True)).flatten()
    start = shift_tokens_right(labels, model.config.decoder_start_token_id, model.config.pad_token_id)
    visual = {name: tensor.repeat_interleave(step.samples, dim=0) for name, tensor in step.visual.items()}
    logits = model(**visual, decoder_input_ids=start, use_cache=False).logits.float()
    padding = step.policy.pad_token_id
    losses = functional.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=padding, reduction="none")
    step.update((losses.view_as(labels).sum(-1) * advantages.to(losses)).sum())


# The training loop on cached features


class CachedFeaturesTask(CaptioningTask):
    """Trains on rows in memory."""

    rows: Dataset

    def load_rows(self, split: str) -> Dataset:
        return self.rows


def write_features(folder: Path, number: int, regions: int, size: int, words: int) -> Dataset:
    """Writes a memory-mapped dataset of the feature contract, float16, with five captions per image."""
    random = np.random.default_rng(0)

    def rows() -> Iterator[dict]:
        features = random.random((regions, size), dtype=np.float32).astype(np.float16)
        for image in range(number):
            corners = random.random((regions, 2), dtype=np.float32) / 2
            captions = [" ".join(f"w{word}" for word in random.integers(0, words, 12)) for _ in range(5)]
            boxes = np.concatenate([corners, corners + 0.3], axis=1)
            yield {"image_id": image, "visual_features": features, "visual_boxes": boxes, "captions": captions}

    folder.mkdir(exist_ok=True)
    write_rows(folder, Rows(caption_features(size), rows(), number), "writing")
    return with_arrays(Dataset.from_file(str(folder / "data.arrow")))


def training_loop(bench: Bench) -> None:
    """Reports an epoch of the package's trainer on features from the disk, and how busy the device is in it.

    A plain update has its batch in memory; the busy time is that of the kernels and copies of a few plain updates.
    """
    number, times, regions, size = (10, 2, 4, 8) if bench.tiny else (2500, 6, 36, 2048)
    model = {"model_type": "ngsan", "geometry_hidden_size": 80}
    if bench.tiny:
        model |= {"hidden_size": 32, "num_hidden_layers": 1}
    with tempfile.TemporaryDirectory() as folder:
        written = write_features(Path(folder, "features"), number, regions, size, 50 if bench.tiny else 9487)
        rows = written.select([*range(number)] * times)
        for precision in PRECISIONS:
            with bench.recorded_failure("an epoch", precision=precision):
                data = {"spec": "features:none", "captions_per_image": 5, "min_word_count": 1}
                data["num_workers"] = 0 if bench.tiny else min(8, WORKERS)
                training = {"output_dir": f"{folder}/{precision}", "batch_size": 5 if bench.tiny else 50}
                training |= {"mixed_precision": None if precision == "fp32" else precision, "tracker": None}
                training["max_grad_norm"] = 5.0
                task = CachedFeaturesTask(
                    CaptioningConfig.from_dict({"model": model, "data": data, "training": training})
                )
                task.rows = rows
                accelerator = make_accelerator(mixed_precision="no" if precision == "fp32" else precision)
                loop = TrainingLoop(accelerator, task, *task.build(written), rows)
                loop.start_clock()
                loop.model.train()
                batch = rows.select(range(training["batch_size"]))
                micro_batches = [MicroBatch(loop.collator(list(batch)), len(batch))]

                def update(loop: TrainingLoop = loop, micro_batches: list = micro_batches) -> None:
                    loop.update(micro_batches)

                makers = {"an update alone": lambda update=update: update}
                alone = bench.compare(makers, precision, len(batch), "images", count=False)
                facts = {"precision": precision, "items": len(rows), "unit": "images"}
                update_seconds = alone["an update alone"].median, bench.busy_seconds(update, 5) / 5
                for place in ("disk", "device"):
                    if place == "device":  # as training.cache_on_device does it
                        loop.cache = FeatureCache.of("true", rows, loop.collator, accelerator.device)
                        loop.progress.step_in_epoch = 0
                    epoch = Timing(bench.steps(loop.train_epoch, 1))
                    bench.report(f"an epoch of {loop.steps_per_epoch} updates from the {place}", epoch, **facts)
                    computing, busy = (loop.steps_per_epoch * seconds / epoch.median for seconds in update_seconds)
                    bench.require(f"busy in training on features of the {place}, {precision}", busy, at_least=0.8)
                    workers = data["num_workers"]
                    bench.note(f"waits for batches from the {place}, {precision}", share=1 - computing, workers=workers)


# Photographs


def photos(bench: Bench, folder: str) -> list[str]:
    """Writes JPEG files of 640 x 480 pixels; returns a list of their paths, each repeated several times."""
    paths = write_photos(Path(folder), 4 if bench.tiny else 256)
    return paths if bench.tiny else paths * 4


def photographs(bench: Bench) -> None:
    """Compares the pipeline of the packaged captioner with only reading and only the model."""
    size, workers = (2, 0) if bench.tiny else (64, WORKERS)
    model, processor = load_model(CAPTIONER, "captioning")
    captioner = pipeline("image-to-text", model=model, processor=processor, device=bench.device)
    with tempfile.TemporaryDirectory() as folder:
        paths = photos(bench, folder)
        reader = captioner.reader()
        loading = {"batch_size": size, "collate_fn": reader.collate, "num_workers": workers}
        prepared = next(iter(DataLoader(Items(paths, reader), **{**loading, "num_workers": 0})))
        batches = max(1, len(paths) // size)

        def read() -> None:
            for _ in DataLoader(Items(paths, reader), **loading):
                pass

        def caption(beams: int) -> None:
            for _ in range(batches):
                captioner.forward(prepared, num_beams=beams)

        timed = {}
        for beams in (3, 1):
            works: dict[str, Callable[[], object]] = {
                f"files to captions, {beams} beams": lambda beams=beams: captioner(
                    paths, batch_size=size, num_workers=workers, num_beams=beams
                ),
                f"model alone, {beams} beams": partial(caption, beams),
            }
            if beams == 3:
                works["reading and preprocessing alone"] = read
            makers = {name: partial(lambda work: work, work) for name, work in works.items()}
            options = {"warm_up": 1, "seconds": 3.0, "count": False}
            timed |= bench.compare(makers, "fp32", len(paths), "images", **options)
        reading, both = timed.get("reading and preprocessing alone"), timed.get("files to captions, 3 beams")
        if reading and both:
            bench.note("files to captions / slower of its parts, 3 beams", waits_for=waits_for(timed), workers=workers)


def waits_for(timings: dict[str, Timing]) -> str:
    parts = {name: timing.median for name, timing in timings.items() if "alone" in name and "1 beams" not in name}
    slowest = max(parts, key=parts.__getitem__)
    return f"{slowest} ({parts[slowest] / timings['files to captions, 3 beams'].median:.0%} of the time)"


def extraction(bench: Bench) -> None:
    """Compares extraction with the vision encoder of the packaged captioner with only reading."""
    size, workers = (2, 0) if bench.tiny else (64, WORKERS)
    model, image_processor = load_vision(CAPTIONER)
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "photos").mkdir()
        number = len(write_photos(Path(folder, "photos"), 4 if bench.tiny else 512))
        images = list_images(f"{folder}/photos")
        batches = [range(start, min(start + size, number)) for start in range(0, number, size)]

        def extract() -> None:
            with tempfile.TemporaryDirectory() as output:
                extract_features(
                    model, image_processor, images, f"{output}/features", batch_size=size, num_workers=workers
                )

        def read() -> None:
            for _ in load_batches(images, batches, image_processor, workers, make_accelerator(), "reading"):
                pass

        works = {"extraction": extract, "reading and preprocessing alone": read}
        makers = {name: partial(lambda work: work, work) for name, work in works.items()}
        bench.compare(makers, "fp32", number, "images", warm_up=1, seconds=3, count=False)


# Retrieval


def contrastive(bench: Bench) -> None:
    """Reports updates of MHSAN on cached features, split into parts of 128 pairs with cached embeddings."""
    text = {"vocab_size": 50, "word_embedding_size": 8, "hidden_size": 32, "num_hidden_layers": 1}
    sizes = {"visual_feature_size": 8, "hidden_size": 32, "projection_dim": 32, "attention_hidden_size": 8}
    regions, words, part = 4, 5, 2
    if not bench.tiny:
        text, sizes, regions, words, part = (
            {"vocab_size": 20_000, "dropout": 0.25, "input_dropout": 0.25},
            {},
            64,
            14,
            128,
        )
    text["pad_token_id"] = 0
    model = MHSANModel(MHSANConfig(vision_config=None, text_config=text, **sizes)).to(bench.device).train()
    size = model.config.visual_feature_size
    objective = Contrastive(ContrastiveSettings(diversity_weight=0.1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)

    def batch(first: int) -> MicroBatch:
        inputs = {
            "visual_features": torch.rand(part, regions, size, device=bench.device),
            "input_ids": torch.randint(4, text["vocab_size"], (part, words), device=bench.device),
            "attention_mask": torch.ones(part, words, dtype=torch.long, device=bench.device),
            "row_index": torch.arange(first, first + part, device=bench.device),
        }
        return MicroBatch(inputs, part)

    def update(batches: list[MicroBatch], precision: str) -> None:
        with bench.autocast(precision):
            prepared = objective.prepare(model, batches, Update(0, 0, one_process=True))
        for inputs in prepared:
            with bench.autocast(precision):
                loss, _ = objective.loss(model, inputs)
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()

    parts = 2 if bench.tiny else 32
    batches = [batch(part * place) for place in range(parts)]
    for precision in PRECISIONS:
        for number in (1, parts):
            makers = {f"batch {part * number}": lambda n=number, p=precision: partial(update, batches[:n], p)}
            is_first = number == 1  # a large batch repeats the same operators
            bench.compare(makers, precision, part * number, "pairs", warm_up=1, count=is_first, busy=is_first)


def search(bench: Bench) -> None:
    """Measures exact search for the ten nearest of a million embeddings."""
    number, dimension, queries = (1000, 16, 10) if bench.tiny else (1_000_000, 256, 100)
    random = np.random.default_rng(0)
    centres = random.standard_normal((1000, dimension), dtype=np.float32)

    def vectors(count: int) -> np.ndarray:
        rows = centres[random.integers(0, len(centres), count)]
        rows += 0.5 * random.standard_normal((count, dimension), dtype=np.float32)
        return rows / np.linalg.norm(rows, axis=1, keepdims=True)

    stored, asked = vectors(number).astype(np.float16), vectors(queries).astype(np.float16)
    table, batch = (torch.from_numpy(part).to(bench.device).float() for part in (stored, asked))
    for count in (1, queries):
        makers = {
            f"exact, {number} vectors, {count} at once": lambda count=count: (
                lambda: (batch[:count] @ table.T).topk(10).indices.cpu()
            )
        }
        bench.compare(makers, "fp32", count, "queries", count=False)


# Captioners of transformers


def guest_self_critical(bench: Bench) -> None:
    """Compares a self-critical step of BLIP-base with plain `generate` and `forward` of transformers."""
    sizes = {"images": 16, "samples": 5, "tokens": 16, "side": 384, "hidden": 768, "layers": 12}
    if bench.tiny:
        sizes |= {"images": 2, "tokens": 4, "side": 32, "hidden": 64, "layers": 1}
    steps = guest_step.Steps(Namespace(**sizes))
    steps.model.to(bench.device)
    steps.pixels, steps.rows = steps.pixels.to(bench.device), steps.rows.to(bench.device)

    def take(step: Callable[[], None]) -> None:
        step()
        steps.model.zero_grad()

    for precision in PRECISIONS:
        with bench.autocast(precision):
            works = {"BLIP-base, ours": steps.ours, "BLIP-base, transformers alone": steps.plain}
            makers = {name: partial(lambda work: partial(take, work), work) for name, work in works.items()}
            samples = sizes["images"] * sizes["samples"]
            timings = bench.compare(makers, precision, samples, "samples", warm_up=1, seconds=2, count=False)
        if len(timings) == 2:
            ours, theirs = timings.values()
            bench.note(f"speed / transformers, {precision}", ratio=theirs.median / ours.median)


PARTS = [  # first what has changed since the last measurement, or was not measured yet
    Part("Ceilings", ceilings, 15),
    Part("Training step", training_steps, 30),
    Part("Training on cached features", training_loop, 60),
    Part("Compiled training step", partial(training_steps, compiled=True), 150),
    Part("Compiled decoding", partial(decoding, compiled=True), 80),
    Part("Photographs to captions", photographs, 40),
    Part("Extraction", extraction, 25),
    Part("MHSAN, contrastive", contrastive, 25),
    Part("Decoding", decoding, 40),
    Part("Self-critical step", self_critical, 20),
    Part("Search", search, 20),
    Part("Self-critical step of BLIP-base", guest_self_critical, 25),
]


def facts_of(device: str) -> dict[str, Any]:
    """Returns facts about the machine for the report, without initializing CUDA."""
    facts = {"device": device, "torch": torch.__version__, "transformers": transformers.__version__}
    if device == "cuda":
        facts["device"] = os.popen("nvidia-smi --query-gpu=name --format=csv,noheader").read().strip() or device
    return {**facts, "cpus": os.cpu_count(), "date": time.strftime("%Y-%m-%d")}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--minutes", type=float, default=8.0, help="time for all parts together (%(default)s)")
    parser.add_argument(
        "--output",
        type=Path,
        default=Path("gpu.json"),
        help="JSON file; the table is written next to it as GPU.md (%(default)s)",
    )
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda", help="(%(default)s)")
    parser.add_argument("--tiny", action="store_true", help="use tiny sizes to test the program")
    parser.add_argument("--parts", nargs="+", metavar="WORD", help="run only parts whose title has one of these words")
    options = parser.parse_args()
    logging.set_verbosity_error()
    words = [word.lower() for word in options.parts or [""]]
    parts = [part for part in PARTS if part is PARTS[0] or any(word in part.title.lower() for word in words)]
    report = Report(options.output, facts_of(options.device))
    options.output.parent.mkdir(parents=True, exist_ok=True)
    run_parts(parts, options.device, options.tiny, options.minutes, report)
    print(report.markdown())
    return 0


if __name__ == "__main__":
    sys.exit(main())
