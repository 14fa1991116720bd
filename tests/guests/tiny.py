"""Tiny captioners and dual encoders of transformers itself, with random weights and tokenizers of their own."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

WORDS = [
    "a",
    "the",
    "red",
    "blue",
    "green",
    "ball",
    "cat",
    "dog",
    "on",
    "in",
    "photo",
    "of",
    "two",
    "left",
    "right",
    "describe",
    "this",
    "image",
    "caption",
    "it",
]
TEXT = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
VISION = {**TEXT, "image_size": 32, "patch_size": 8}


def photos(number: int = 2, seed: int = 0) -> list[Image.Image]:
    """Images of noise, of several sizes."""
    random = np.random.default_rng(seed)
    return [
        Image.fromarray(random.integers(0, 256, (40 + 8 * index, 56, 3), dtype=np.uint8)) for index in range(number)
    ]


def word_tokenizer(
    special: dict[str, str], template: str = "$A", extra: tuple[str, ...] = ()
) -> PreTrainedTokenizerFast:
    """A word-level tokenizer with some special tokens, which `template` puts around a text."""
    names = [*special.values(), *extra]
    vocabulary = {word: index for index, word in enumerate(dict.fromkeys([*names, *WORDS]))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=special["unk_token"]))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    if template != "$A":
        used = [(name, vocabulary[name]) for name in names if name in template.split()]
        tokenizer.post_processor = processors.TemplateProcessing(single=template, special_tokens=used)
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, model_max_length=64, **special)
    wrapped.add_special_tokens({"additional_special_tokens": list(extra)} if extra else {})
    return wrapped


def bert_tokenizer() -> PreTrainedTokenizerFast:
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return word_tokenizer(special, "[CLS] $A [SEP]", ("[DEC]",))


def gpt_tokenizer(extra: tuple[str, ...] = ()) -> PreTrainedTokenizerFast:
    special = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    return word_tokenizer(special, extra=extra)


def blip() -> tuple[Any, Any]:
    tokenizer = bert_tokenizer()
    ids = {"bos_token_id": 4, "pad_token_id": 0, "eos_token_id": 3, "sep_token_id": 3}
    text = {**TEXT, "vocab_size": len(tokenizer), "encoder_hidden_size": 16, "max_position_embeddings": 64, **ids}
    model = transformers.BlipForConditionalGeneration(transformers.BlipConfig(text_config=text, vision_config=VISION))
    images = transformers.BlipImageProcessor(size={"height": 32, "width": 32})
    return model, transformers.BlipProcessor(images, tokenizer)


def git() -> tuple[Any, Any]:
    tokenizer = bert_tokenizer()
    ids = {"bos_token_id": 2, "pad_token_id": 0, "eos_token_id": 3}
    config = transformers.GitConfig(
        **TEXT, vocab_size=len(tokenizer), max_position_embeddings=64, vision_config=VISION, **ids
    )
    images = transformers.CLIPImageProcessor(size={"shortest_edge": 32}, crop_size={"height": 32, "width": 32})
    return transformers.GitForCausalLM(config), transformers.GitProcessor(images, tokenizer)


def vit_gpt2() -> tuple[Any, Any]:
    tokenizer = gpt_tokenizer()
    encoder = transformers.ViTConfig(**VISION)
    decoder = transformers.GPT2Config(
        vocab_size=len(tokenizer), n_embd=16, n_layer=2, n_head=2, n_positions=64, bos_token_id=1, eos_token_id=2,
        add_cross_attention=True, is_decoder=True,
    )  # fmt: skip
    config = transformers.VisionEncoderDecoderConfig.from_encoder_decoder_configs(
        encoder, decoder, decoder_start_token_id=1, pad_token_id=0, eos_token_id=2
    )
    model = transformers.VisionEncoderDecoderModel(config)
    model.generation_config.update(decoder_start_token_id=1, pad_token_id=0, eos_token_id=2)
    return model, (transformers.ViTImageProcessor(size={"height": 32, "width": 32}), tokenizer)


def save(guest: tuple[Any, Any], folder: Path) -> Path:
    """Saves a model and its processor, or its image processor and tokenizer, as the Hub's checkpoints are."""
    model, processor = guest
    model.save_pretrained(folder)
    for part in processor if isinstance(processor, tuple) else (processor,):
        part.save_pretrained(folder)
    return folder


CAPTIONERS = {"blip": blip, "git": git, "vit_gpt2": vit_gpt2}


def tiny(name: str) -> tuple[Any, Any]:
    """A captioner by name, the same in every run."""
    torch.manual_seed(0)
    model, processor = CAPTIONERS[name]()
    with torch.no_grad():
        for weight in model.parameters():  # further apart than at initialization, so that captions differ by image
            weight.mul_(3.0 if weight.ndim > 1 else 1.0)
    return model.eval(), processor
