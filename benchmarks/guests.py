"""Images per second of `pipeline("image-to-text")` with a BLIP with random weights, against a plain transformers loop.

Both caption the same images in batches of the same size with the same model; they take turns in one process, and the
result is the ratio of each round. Each caption has the maximum number of tokens, so that both do the same work.

    python benchmarks/guests.py
    python benchmarks/guests.py --threads 1 --images 16 --rounds 5
"""

import argparse
import statistics
import sys
import time

import numpy as np
import torch
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import (
    BlipConfig,
    BlipForConditionalGeneration,
    BlipImageProcessor,
    BlipProcessor,
    PreTrainedTokenizerFast,
    pipeline,
)
from transformers.utils import logging

import hf_ngsan  # noqa: F401  # registers the pipeline

REQUIRED = 0.95
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[DEC]"]


def make_tokenizer(words: int) -> PreTrainedTokenizerFast:
    known = SPECIAL + [f"word{index}" for index in range(words)]
    backend = Tokenizer(models.WordLevel({word: index for index, word in enumerate(known)}, unk_token="[UNK]"))
    backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    names = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return PreTrainedTokenizerFast(tokenizer_object=backend, **names)


def make_captioner(
    side: int, hidden: int, layers: int, words: int = 1000
) -> tuple[BlipForConditionalGeneration, BlipProcessor]:
    torch.manual_seed(0)
    tokenizer = make_tokenizer(words)
    sizes = {
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "num_attention_heads": hidden // 64,
        "intermediate_size": 4 * hidden,
    }
    ids = {"bos_token_id": 4, "pad_token_id": 0, "eos_token_id": 3, "sep_token_id": 3}
    text = {**sizes, **ids, "vocab_size": len(tokenizer), "encoder_hidden_size": hidden}
    config = BlipConfig(text_config=text, vision_config={**sizes, "image_size": side, "patch_size": 16})
    images = BlipImageProcessor(size={"height": side, "width": side})
    return BlipForConditionalGeneration(config).eval(), BlipProcessor(images, tokenizer)


def plain_loop(model, processor, images: list, batch_size: int, **generate_arguments) -> list[str]:
    captions = []
    for start in range(0, len(images), batch_size):
        inputs = processor(images=images[start : start + batch_size], return_tensors="pt")
        with torch.inference_mode():
            ids = model.generate(**inputs, **generate_arguments)
        captions += processor.batch_decode(ids, skip_special_tokens=True)
    return captions


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--side", type=int, default=224, help="side of images in pixels (%(default)s)")
    parser.add_argument("--hidden", type=int, default=256, help="hidden size (%(default)s)")
    parser.add_argument("--layers", type=int, default=6, help="layers of each side (%(default)s)")
    parser.add_argument("--images", type=int, default=32)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    logging.set_verbosity_error()
    torch.set_num_threads(options.threads)
    model, processor = make_captioner(options.side, options.hidden, options.layers)
    captioner = pipeline("image-to-text", model=model, processor=processor)
    random = np.random.default_rng(0)
    images = [Image.fromarray(random.integers(0, 256, (480, 640, 3), np.uint8)) for _ in range(options.images)]
    settings = {"max_new_tokens": 12, "min_new_tokens": 12}

    def ours() -> list[str]:
        answers = captioner(images, batch_size=options.batch_size, **settings)
        return [answer["generated_text"] for [answer] in answers]

    def theirs() -> list[str]:
        return plain_loop(model, processor, images, options.batch_size, **settings)

    assert ours() == theirs()
    ratios = []
    for number in range(options.rounds):
        seconds = {}
        for name, work in (("ours", ours), ("theirs", theirs)) if number % 2 else (("theirs", theirs), ("ours", ours)):
            start = time.perf_counter()
            work()
            seconds[name] = time.perf_counter() - start
        ratios.append(seconds["theirs"] / seconds["ours"])
        print(
            f"round {number + 1}: {options.images / seconds['ours']:.1f} images/s, ratio {ratios[-1]:.3f}", flush=True
        )
    middle = statistics.median(ratios)
    print(f"images/s of the pipeline over the plain loop: {middle:.3f} ({min(ratios):.3f} to {max(ratios):.3f})")
    return 0 if middle >= REQUIRED else 1


if __name__ == "__main__":
    sys.exit(main())
