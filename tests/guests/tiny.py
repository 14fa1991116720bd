"""Tiny captioners and dual encoders of transformers, with random weights and tokenizers."""

from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from PIL import Image
from tokenizers import Tokenizer, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

WORDS = [
    "a", "the", "red", "blue", "green", "ball", "cat", "dog", "on", "in", "photo", "of",
    "two", "left", "right", "describe", "this", "image", "caption", "it",
]  # fmt: skip
TEXT = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
VISION = {**TEXT, "image_size": 32, "patch_size": 8, "initializer_range": 0.02}
IDS = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
CHAT = """{% for message in messages %}{% for part in message['content'] %}
{%- if part['type'] == 'image' %}<image>{% else %} {{ part['text'] }}{% endif %}
{%- endfor %}{% endfor %} it"""


def photos(number: int = 2, seed: int = 0) -> list[Image.Image]:
    """Images of noise, of several sizes."""
    random = np.random.default_rng(seed)
    return [Image.fromarray(random.integers(0, 256, (40 + 8 * at, 56, 3), dtype=np.uint8)) for at in range(number)]


def word_tokenizer(
    special: dict[str, str], template: str = "$A", extra: tuple[str, ...] = (), named: dict[str, str] | None = None
) -> PreTrainedTokenizerFast:
    """A word-level tokenizer with special tokens, also those in `named`; `template` adds some to a text."""
    named = named or {}
    names = [*special.values(), *extra, *named.values()]
    vocabulary = {word: index for index, word in enumerate(dict.fromkeys([*names, *WORDS]))}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token=special["unk_token"]))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    if template != "$A":
        used = [(name, vocabulary[name]) for name in names if name in template.split()]
        tokenizer.post_processor = processors.TemplateProcessing(single=template, special_tokens=used)
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, model_max_length=512, extra_special_tokens=named, **special
    )
    wrapped.add_tokens(list(extra), special_tokens=True)
    return wrapped


def bert_tokenizer() -> PreTrainedTokenizerFast:
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "cls_token": "[CLS]", "sep_token": "[SEP]"}
    return word_tokenizer(special, "[CLS] $A [SEP]", ("[DEC]",))


def gpt_tokenizer(*extra: str, **named: str) -> PreTrainedTokenizerFast:
    special = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    return word_tokenizer(special, extra=extra, named=named)


def blip() -> tuple[Any, Any]:
    tokenizer = bert_tokenizer()
    ids = {"bos_token_id": 4, "pad_token_id": 0, "eos_token_id": 3, "sep_token_id": 3}
    text = {**TEXT, "vocab_size": len(tokenizer), "encoder_hidden_size": 16, "max_position_embeddings": 64, **ids}
    model = transformers.BlipForConditionalGeneration(transformers.BlipConfig(text_config=text, vision_config=VISION))
    images = square(transformers.BlipImageProcessor)
    return model, transformers.BlipProcessor(images, tokenizer)


def git() -> tuple[Any, Any]:
    tokenizer = bert_tokenizer()
    ids = {"bos_token_id": 2, "pad_token_id": 0, "eos_token_id": 3}
    config = transformers.GitConfig(
        **TEXT, vocab_size=len(tokenizer), max_position_embeddings=64, vision_config=VISION, **ids
    )
    images = square(transformers.CLIPImageProcessor)
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
    return model, (square(transformers.ViTImageProcessor), tokenizer)


def square(kind: Any, side: int = 32) -> Any:
    """An image processor for square images."""
    if kind in (transformers.CLIPImageProcessor, transformers.ChineseCLIPImageProcessor):
        return kind(size={"shortest_edge": side}, crop_size={"height": side, "width": side})
    return kind(size={"height": side, "width": side})


def blip2() -> tuple[Any, Any]:
    tokenizer = gpt_tokenizer("<image>")
    config = transformers.Blip2Config(
        vision_config=VISION, qformer_config=query_transformer(tokenizer), text_config=opt(tokenizer),
        num_query_tokens=4, image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
    )  # fmt: skip
    images = square(transformers.BlipImageProcessor)
    processor = transformers.Blip2Processor(images, tokenizer, num_query_tokens=4)
    return transformers.Blip2ForConditionalGeneration(config), processor


def instructblip() -> tuple[Any, Any]:
    tokenizer, query_tokenizer = gpt_tokenizer("<image>"), bert_tokenizer()
    config = transformers.InstructBlipConfig(
        vision_config=VISION, qformer_config=query_transformer(query_tokenizer), text_config=opt(tokenizer),
        num_query_tokens=4, image_token_index=tokenizer.convert_tokens_to_ids("<image>"),
    )  # fmt: skip
    images = square(transformers.BlipImageProcessor)
    processor = transformers.InstructBlipProcessor(images, tokenizer, query_tokenizer, num_query_tokens=4)
    return transformers.InstructBlipForConditionalGeneration(config), processor


def query_transformer(tokenizer: Any) -> dict:
    return {**TEXT, "vocab_size": len(tokenizer), "encoder_hidden_size": 16, "max_position_embeddings": 64}


def opt(tokenizer: Any) -> dict:
    sizes = {"hidden_size": 16, "word_embed_proj_dim": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    return {"model_type": "opt", **sizes, "ffn_dim": 32, "max_position_embeddings": 64, **words_of(tokenizer)}


def words_of(tokenizer: Any) -> dict:
    """Special tokens and size of the vocabulary of a text model with `gpt_tokenizer`."""
    return {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "vocab_size": len(tokenizer)}


def llama(tokenizer: Any, **changes: Any) -> dict:
    return {"model_type": "llama", **TEXT, "num_key_value_heads": 2, **words_of(tokenizer), **changes}


def florence2() -> tuple[Any, Any]:
    tokenizer = gpt_tokenizer(image_token="<image>")
    text = {
        "model_type": "bart", "vocab_size": len(tokenizer), "d_model": 16, "max_position_embeddings": 64, **IDS,
        "decoder_start_token_id": 2, "forced_eos_token_id": None,
        **{f"{side}_{name}": value for side in ("encoder", "decoder")
           for name, value in (("layers", 2), ("attention_heads", 2), ("ffn_dim", 32))},
    }  # fmt: skip
    vision = {
        "embed_dim": [8, 8, 16, 16], "depths": [1] * 4, "num_heads": [2] * 4, "num_groups": [2] * 4,
        "projection_dim": 16, "window_size": 4, "drop_path_rate": 0.0,
    }  # fmt: skip
    config = transformers.Florence2Config(
        text_config=text, vision_config=vision, image_token_id=tokenizer.image_token_id, vocab_size=len(tokenizer)
    )
    images = transformers.CLIPImageProcessor(size={"height": 64, "width": 64}, do_center_crop=False)
    images.image_seq_length = 5
    processor = transformers.Florence2Processor(images, tokenizer)
    return transformers.Florence2ForConditionalGeneration(config), processor


def kosmos2() -> tuple[Any, Any]:
    marks = ("<image>", "</image>", "<grounding>", "<phrase>", "</phrase>", "<object>", "</object>")
    tokenizer = gpt_tokenizer(*marks, "</delimiter_of_multi_objects/>")
    text = {"embed_dim": 16, "layers": 2, "attention_heads": 2, "ffn_dim": 32, "max_position_embeddings": 128, **IDS}
    processor = transformers.Kosmos2Processor(
        square(transformers.CLIPImageProcessor), tokenizer, num_patch_index_tokens=4
    )
    text["vocab_size"] = 128  # the ids from 4 on are tokens of the image
    config = transformers.Kosmos2Config(text_config=text, vision_config=VISION, latent_query_num=64)
    return transformers.Kosmos2ForConditionalGeneration(config), processor


def paligemma() -> tuple[Any, Any]:
    tokenizer = gpt_tokenizer(image_token="<image>")
    images = square(transformers.SiglipImageProcessor)
    images.image_seq_length = 16
    processor = transformers.PaliGemmaProcessor(images, tokenizer)  # which adds tokens of positions
    config = transformers.PaliGemmaConfig(
        text_config=llama(tokenizer, model_type="gemma", head_dim=8),
        vision_config={"model_type": "siglip_vision_model", **VISION},
        image_token_index=tokenizer.image_token_id,
        projection_dim=16,
    )
    return transformers.PaliGemmaForConditionalGeneration(config), processor


def gemma3() -> tuple[Any, Any]:
    """A chat model without a description; tokens of an image attend to each other."""
    marks = {"image_token": "<image_soft_token>", "boi_token": "<start_of_image>", "eoi_token": "<end_of_image>"}
    tokenizer = gpt_tokenizer(**marks)
    text = {
        **TEXT, **IDS, "vocab_size": len(tokenizer), "num_key_value_heads": 2, "head_dim": 8, "sliding_window": 64,
        "layer_types": ["sliding_attention", "full_attention"],
    }  # fmt: skip
    config = transformers.Gemma3Config(
        text_config=text, vision_config={"model_type": "siglip_vision_model", **VISION}, mm_tokens_per_image=4,
        image_token_index=tokenizer.image_token_id, boi_token_index=tokenizer.boi_token_id,
        eoi_token_index=tokenizer.eoi_token_id,
    )  # fmt: skip
    processor = transformers.Gemma3Processor(
        square(transformers.Gemma3ImageProcessor), tokenizer, image_seq_length=4,
        chat_template=CHAT.replace("<image>", "<start_of_image>"),
    )  # fmt: skip
    return transformers.Gemma3ForConditionalGeneration(config), processor


def llava() -> tuple[Any, Any]:
    tokenizer = gpt_tokenizer("<image>")
    image_token = tokenizer.convert_tokens_to_ids("<image>")
    vision = {"model_type": "clip_vision_model", "projection_dim": 16, **VISION}
    config = transformers.LlavaConfig(
        text_config=llama(tokenizer), vision_config=vision, image_token_index=image_token, image_seq_length=16
    )
    processor = transformers.LlavaProcessor(
        square(transformers.CLIPImageProcessor), tokenizer, patch_size=8, vision_feature_select_strategy="default",
        chat_template=CHAT, image_token="<image>", num_additional_image_tokens=1,
    )  # fmt: skip
    return transformers.LlavaForConditionalGeneration(config), processor


def idefics3() -> tuple[Any, Any]:
    tokenizer = gpt_tokenizer("<image>", "<fake_token_around_image>", "<global-img>", "<end_of_utterance>")
    config = transformers.Idefics3Config(
        text_config=llama(tokenizer), vision_config=VISION, scale_factor=2,
        image_token_id=tokenizer.convert_tokens_to_ids("<image>"), pad_token_id=0,
    )  # fmt: skip
    images = transformers.Idefics3ImageProcessor(size={"longest_edge": 64}, max_image_size={"longest_edge": 32})
    processor = transformers.Idefics3Processor(images, tokenizer, image_seq_len=4, chat_template=CHAT)
    return transformers.Idefics3ForConditionalGeneration(config), processor


def save(guest: tuple[Any, Any], folder: Path) -> Path:
    """Saves a model and its processor, or its image processor and tokenizer, like checkpoints of the Hub."""
    model, processor = guest
    model.save_pretrained(folder)
    for part in processor if isinstance(processor, tuple) else (processor,):
        part.save_pretrained(folder)
    return folder


CAPTIONERS = {
    make.__name__: make
    for make in (
        blip, git, vit_gpt2, blip2, instructblip, florence2, kosmos2, paligemma, gemma3, llava, idefics3
    )
}  # fmt: skip


def tiny(name: str) -> tuple[Any, Any]:
    """A captioner or dual encoder by name, the same in every run."""
    torch.manual_seed(0)
    model, processor = {**CAPTIONERS, **DUAL_ENCODERS}[name]()
    with torch.no_grad():
        for weight in model.parameters():  # larger than at initialization, so that captions differ by image
            weight.mul_(3.0 if weight.ndim > 1 else 1.0)
    return model.eval(), processor


def clip() -> tuple[Any, Any]:
    tokenizer = gpt_tokenizer()
    text = {**TEXT, **words_of(tokenizer), "max_position_embeddings": 16}
    config = transformers.CLIPConfig(text_config=text, vision_config=VISION, projection_dim=8)
    images = square(transformers.CLIPImageProcessor)
    return transformers.CLIPModel(config), transformers.CLIPProcessor(images, tokenizer)


def siglip() -> tuple[Any, Any]:
    tokenizer = gpt_tokenizer()
    text = {**TEXT, **words_of(tokenizer), "max_position_embeddings": 16}
    config = transformers.SiglipConfig(text_config=text, vision_config=VISION)
    images = square(transformers.SiglipImageProcessor)
    return transformers.SiglipModel(config), transformers.SiglipProcessor(images, tokenizer)


def siglip2() -> tuple[Any, Any]:
    tokenizer = gpt_tokenizer()
    text = {**TEXT, **words_of(tokenizer), "max_position_embeddings": 16}
    config = transformers.Siglip2Config(text_config=text, vision_config={**TEXT, "patch_size": 8, "num_patches": 16})
    images = transformers.Siglip2ImageProcessor(patch_size=8, max_num_patches=16)
    return transformers.Siglip2Model(config), transformers.Siglip2Processor(images, tokenizer)


def chinese_clip() -> tuple[Any, Any]:
    tokenizer = bert_tokenizer()
    text = {**TEXT, "vocab_size": len(tokenizer), "max_position_embeddings": 64}
    config = transformers.ChineseCLIPConfig(text_config=text, vision_config=VISION, projection_dim=8)
    images = square(transformers.ChineseCLIPImageProcessor)
    return transformers.ChineseCLIPModel(config), transformers.ChineseCLIPProcessor(images, tokenizer)


def altclip() -> tuple[Any, Any]:
    tokenizer = bert_tokenizer()
    text = {**TEXT, "vocab_size": len(tokenizer), "max_position_embeddings": 66, "project_dim": 16, "pad_token_id": 0}
    config = transformers.AltCLIPConfig(text_config=text, vision_config=VISION, projection_dim=8)
    images = square(transformers.CLIPImageProcessor)
    return transformers.AltCLIPModel(config), transformers.AltCLIPProcessor(images, tokenizer)


def align() -> tuple[Any, Any]:
    tokenizer = bert_tokenizer()
    text = {**TEXT, "vocab_size": len(tokenizer), "max_position_embeddings": 64}
    vision = {
        "image_size": 32, "width_coefficient": 0.1, "depth_coefficient": 0.1, "hidden_dim": 8,
        "kernel_sizes": [3, 3], "in_channels": [8, 8], "out_channels": [8, 16], "strides": [1, 2],
        "num_block_repeats": [1, 1], "expand_ratios": [1, 2], "depthwise_padding": [],
    }  # fmt: skip
    config = transformers.AlignConfig(text_config=text, vision_config=vision, projection_dim=8)
    images = square(transformers.EfficientNetImageProcessor)
    return transformers.AlignModel(config), transformers.AlignProcessor(images, tokenizer)


def blip_retrieval() -> tuple[Any, Any]:
    captioner, processor = blip()
    return transformers.BlipForImageTextRetrieval(captioner.config), processor


DUAL_ENCODERS = {make.__name__: make for make in (clip, siglip, siglip2, chinese_clip, altclip, align)}
