"""Convert a captioner of the authors' RSTNet (Zhang et al. 2021) into a checkpoint for transformers.

    python conversion/convert_rstnet.py --captioner rstnet_last.pth --language-model language_last.pth \\
        --vocab vocab.pkl --output rstnet

`AutoModelForImageTextToText` and `AutoProcessor` load the folder. The language model of the captioner is the copy in
the captioner's checkpoint, which differs from the language model's checkpoint, because its training starts from new
weights. The latter becomes a separate checkpoint in the subfolder `language_model`. Sizes are read from the weights,
except the number of BERT's attention heads. This is --text-encoder-heads, or `bert.num_attention_heads` in a file
`config.json` next to the captioner's checkpoint, or one head per 64 channels for 768 or more channels, as in BERT-base,
or the number of the captioner.
"""

import argparse
import collections
import copyreg
import json
import pickle  # nosec B403  # restricted below to the classes of a vocabulary
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from state_dicts import ConversionError, convert, load_state_dict, run_conversion
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import GenerationConfig, PreTrainedTokenizerFast

from hf_ngsan.data.vocabulary import NORMALIZER, with_ends
from hf_ngsan.io.folders import replace_folder_contents
from hf_ngsan.loading.models import save_model, without_weight_bars
from hf_ngsan.models.configuration_rstnet import RSTNetConfig, RSTNetLanguageModelConfig
from hf_ngsan.models.modeling_rstnet import RSTNetForConditionalGeneration
from hf_ngsan.models.modeling_rstnet_language_model import RSTNetLanguageModel
from hf_ngsan.models.processing_rstnet import RSTNetProcessor

SPECIAL_TOKENS = {"pad_token": "<pad>", "bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>"}
LEFT_OUT = r"(.*\.)?(running_\w+|embeddings\.position_ids|pooler\.dense\.\w+)$"
"""State of decoding, a counter that BERT creates, and its pooling layer, which is unused."""
HEAD = re.compile(r"encoder\.WGs\.(\d+)\.(weight|bias)$")
HEADS = "encoder.WGs.{}"
LANGUAGE_MODEL = "decoder.language_model."
CHANNELS_OF_A_HEAD, CHANNELS_OF_BERT_BASE = 64, 768
BEAMS, MAX_CAPTION_LENGTH = 5, 20
ATTENTION = {"q_proj": "fc_q", "k_proj": "fc_k", "v_proj": "fc_v", "out_proj": "fc_o", "signal_proj": "fc_s"}
RENAMED = [
    (r"^model\.", ""),
    (r"^lm_head\.", "decoder.fc."),
    (r"^encoder\.input_proj\.", "encoder.fc."),
    (r"^encoder\.input_norm\.", "encoder.layer_norm."),
    (r"^encoder\.geometry\.weights\.content_proj\.", "encoder.WGs."),
    (r"^decoder\.embed_tokens\.", "decoder.word_emb."),
    (r"^decoder\.positions\.table$", "decoder.pos_emb.weight"),
    (r"^(encoder\.layers\.\d+)\.self_attn\.(\w+)", r"\1.mhatt.attention.\2"),
    (r"^(encoder\.layers\.\d+)\.self_attn_norm\.norm", r"\1.mhatt.layer_norm"),
    (r"^(encoder\.layers\.\d+)\.self_attn_norm\.outer_norm", r"\1.lnorm"),
    (r"^(decoder\.layers\.\d+)\.self_attn\.(\w+)", r"\1.self_att.attention.\2"),
    (r"^(decoder\.layers\.\d+)\.self_attn_norm\.norm", r"\1.self_att.layer_norm"),
    (r"^(decoder\.layers\.\d+)\.self_attn_norm\.outer_norm", r"\1.lnorm1"),
    (r"^(decoder\.layers\.\d+)\.encoder_attn\.(\w+)", r"\1.enc_att.attention.\2"),
    (r"^(decoder\.layers\.\d+)\.encoder_attn_norm\.norm", r"\1.enc_att.layer_norm"),
    (r"^(decoder\.layers\.\d+)\.encoder_attn_norm\.outer_norm", r"\1.lnorm2"),
    (r"\.feed_forward\.feed_forward\.up\.", ".pwff.fc1."),
    (r"\.feed_forward\.feed_forward\.down\.", ".pwff.fc2."),
    (r"\.feed_forward\.norm\.", ".pwff.layer_norm."),
]
RENAMED_IN_LANGUAGE_MODEL = [
    (r"^text_encoder\.", "language_model."),
    (r"^projection\.", "proj_to_caption_model."),
    (r"^positions\.table$", "pos_emb.weight"),
    (r"^lm_head\.", "proj_to_vocab."),
    (r"^layer\.self_attn\.(\w+)", r"encoder_layer.self_att.attention.\1"),
    (r"^layer\.self_attn_norm\.norm", "encoder_layer.self_att.layer_norm"),
    (r"^layer\.self_attn_norm\.outer_norm", "encoder_layer.lnorm1"),
    (r"^layer\.feed_forward\.feed_forward\.up\.", "encoder_layer.pwff.fc1."),
    (r"^layer\.feed_forward\.feed_forward\.down\.", "encoder_layer.pwff.fc2."),
    (r"^layer\.feed_forward\.norm\.", "encoder_layer.pwff.layer_norm."),
]


class RecordedVocabulary:
    """Replacement for the classes in a pickled vocabulary of the authors or of torchtext."""


def no_word() -> int:
    return 0


CLASSES_OF_A_VOCABULARY = {
    ("data.vocab", "Vocab"): RecordedVocabulary,
    ("torchtext.vocab", "Vocab"): RecordedVocabulary,
    ("data.vocab", "_default_unk_index"): no_word,
    ("torchtext.vocab", "_default_unk_index"): no_word,
    ("collections", "Counter"): collections.Counter,
    ("collections", "defaultdict"): collections.defaultdict,
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("copyreg", "_reconstructor"): copyreg._reconstructor,  # type: ignore[attr-defined]
    ("copy_reg", "_reconstructor"): copyreg._reconstructor,  # type: ignore[attr-defined]
    ("builtins", "object"): object,
    ("__builtin__", "object"): object,
}


class VocabularyUnpickler(pickle.Unpickler):
    """Unpickles only a vocabulary; it imports no other classes and calls no functions."""

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in CLASSES_OF_A_VOCABULARY:
            raise ConversionError(f"it names {module}.{name}, which is not part of a vocabulary")
        return CLASSES_OF_A_VOCABULARY[module, name]


def load_words(path: str | Path) -> list[str]:
    """Reads the words of the authors' `vocab.pkl`, in the order of their ids, without running code from it.

    Raises:
        OSError: the file cannot be read.
        ConversionError: it is not a vocabulary, names other classes, or lacks a special token.
    """
    with open(path, "rb") as file:
        try:
            vocabulary = VocabularyUnpickler(file).load()
        except Exception as error:  # pickle raises any kind of error for other formats
            raise ConversionError(
                f"{path} is not a pickled vocabulary of RSTNet ({error or type(error).__name__})."
            ) from error
    words = vocabulary.get("itos") if isinstance(vocabulary, dict) else getattr(vocabulary, "itos", None)
    if not isinstance(words, list) or not all(isinstance(word, str) and word for word in words):
        raise ConversionError(f"{path} is not a pickled vocabulary of RSTNet: it has no list of words (itos).")
    if len(set(words)) < len(words):
        twice = next(word for word, count in collections.Counter(words).items() if count > 1)
        raise ConversionError(f"{path} has the word {twice!r} twice.")
    missing = [token for token in SPECIAL_TOKENS.values() if token not in words]
    if missing:
        raise ConversionError(f"{path} lacks the token {missing[0]}.")
    return words


def size(weights: dict[str, torch.Tensor], name: str, axis: int) -> int:
    """Returns the length of a matrix of a checkpoint along an axis."""
    if name not in weights:
        raise ConversionError(f"The checkpoint lacks {name}; is it an RSTNet checkpoint?")
    if weights[name].ndim != 2:
        raise ConversionError(f"{name} has the shape {tuple(weights[name].shape)}; it must be a matrix.")
    return weights[name].shape[axis]


def count(weights: dict[str, torch.Tensor], pattern: str) -> int:
    """Returns the number of layers; `pattern` matches the beginning of weight names up to the layer number."""
    numbers = {int(match[1]) for match in (re.match(pattern, name) for name in weights) if match}
    return max(numbers, default=-1) + 1


def language_fields(weights: dict[str, torch.Tensor], heads: int, text_encoder_heads: int | None) -> dict[str, Any]:
    """Returns the configuration fields of a language model from its weights."""
    bert = "language_model.embeddings.{}_embeddings.weight"
    channels = size(weights, bert.format("word"), 1)
    if text_encoder_heads is None:
        text_encoder_heads = channels // CHANNELS_OF_A_HEAD if channels >= CHANNELS_OF_BERT_BASE else heads
    if text_encoder_heads < 1 or channels % text_encoder_heads:
        raise ConversionError(
            f"BERT's {channels} channels are not a multiple of {text_encoder_heads} heads; set --text-encoder-heads."
        )
    return {
        "vocab_size": size(weights, "proj_to_vocab.weight", 0),
        "hidden_size": size(weights, "proj_to_caption_model.weight", 0),
        "num_attention_heads": heads,
        "intermediate_size": size(weights, "encoder_layer.pwff.fc1.weight", 0),
        "max_position_embeddings": size(weights, "pos_emb.weight", 0) - 1,
        "text_encoder_config": {
            "model_type": "bert",
            "vocab_size": size(weights, bert.format("word"), 0),
            "hidden_size": channels,
            "num_hidden_layers": count(weights, r"language_model\.encoder\.layer\.(\d+)\."),
            "num_attention_heads": text_encoder_heads,
            "intermediate_size": size(weights, "language_model.encoder.layer.0.intermediate.dense.weight", 0),
            "max_position_embeddings": size(weights, bert.format("position"), 0),
            "type_vocab_size": size(weights, bert.format("token_type"), 0),
        },
    }


def captioner_config(
    weights: dict[str, torch.Tensor], tokens: dict[str, int], text_encoder_heads: int | None
) -> RSTNetConfig:
    """Returns the configuration of a captioner from its weights.

    Raises:
        ConversionError: weights that define a size are missing or inconsistent.
    """
    heads = len({match[1] for match in map(HEAD.match, weights) if match})
    if not heads:
        raise ConversionError("The checkpoint lacks encoder.WGs.0.weight; is it an RSTNet checkpoint?")
    language_weights = {
        name.removeprefix(LANGUAGE_MODEL): weight for name, weight in weights.items() if name.startswith(LANGUAGE_MODEL)
    }
    return RSTNetConfig.from_release(
        vocab_size=size(weights, "decoder.word_emb.weight", 0),
        hidden_size=size(weights, "decoder.word_emb.weight", 1),
        visual_feature_size=size(weights, "encoder.fc.weight", 1),
        num_attention_heads=heads,
        encoder_layers=count(weights, r"encoder\.layers\.(\d+)\."),
        plain_decoder_layers=count(weights, r"decoder\.layers\.(\d+)\.") - 1,
        intermediate_size=size(weights, "decoder.layers.0.pwff.fc1.weight", 0),
        geometry_hidden_size=size(weights, "encoder.WGs.0.weight", 1),
        max_position_embeddings=size(weights, "decoder.pos_emb.weight", 0) - 1,
        language_model_config=language_fields(language_weights, heads, text_encoder_heads),
        **tokens,
    )


def language_model_config(
    weights: dict[str, torch.Tensor], captioner: RSTNetConfig, text_encoder_heads: int | None
) -> RSTNetLanguageModelConfig:
    """Returns the configuration of a language model from its weights; other fields are those of the captioner.

    Raises:
        ConversionError: its vocabulary or size differs from the captioner's.
    """
    parent: Any = captioner.language_model_config
    fields = language_fields(weights, captioner.num_attention_heads, text_encoder_heads)
    for name in ("vocab_size", "hidden_size"):
        if fields[name] != getattr(parent, name):
            raise ConversionError(
                f"{name} is {fields[name]} in the checkpoint of the language model, but {getattr(parent, name)} in "
                "that of the captioner; they do not belong together."
            )
    return RSTNetLanguageModelConfig.from_dict({**parent.to_dict(), **fields})


def theirs_in_language_model(ours: str) -> str:
    return renamed(ours, RENAMED_IN_LANGUAGE_MODEL)


def theirs(ours: str) -> str:
    """Returns the name in the release of a weight of this package."""
    ours_in_language_model = ours.removeprefix("model.decoder.language_model.")
    if ours_in_language_model != ours:
        return LANGUAGE_MODEL + theirs_in_language_model(ours_in_language_model)
    return renamed(ours, RENAMED)


def renamed(name: str, table: list[tuple[str, str]]) -> str:
    is_of_bert = name.startswith("text_encoder.")
    for pattern, replacement in table:
        name = re.sub(pattern, replacement, name)
    parts = name.split(".")
    return name if is_of_bert else ".".join(ATTENTION.get(part, part) for part in parts)


def joined_heads(weights: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Combines the release's projections of heads, `encoder.WGs.0` and so on, into one."""
    heads: dict[str, dict[int, torch.Tensor]] = {"weight": {}, "bias": {}}
    others = {}
    for name, weight in weights.items():
        match = HEAD.match(name)
        if match:
            heads[match[2]][int(match[1])] = weight
        else:
            others[name] = weight
    for field, rows in heads.items():
        missing = [number for number in range(len(heads["weight"])) if number not in rows]
        if missing:
            raise ConversionError(f"The checkpoint lacks encoder.WGs.{missing[0]}.{field}.")
        if any(weight.ndim != (2 if field == "weight" else 1) or len(weight) != 1 for weight in rows.values()):
            raise ConversionError(f"encoder.WGs.*.{field} must have one row of numbers for each head.")
        others[f"encoder.WGs.{field}"] = torch.cat([rows[number] for number in sorted(rows)])
    return others


def report(weights: dict[str, torch.Tensor], left_out: Sequence[str], file: str) -> list[str]:
    """Returns a line for every key of a checkpoint: used or left out."""
    left = set(left_out)
    return [f"{file}: {'left out' if name in left else 'used'}: {name}" for name in sorted(weights)]


def convert_captioner(
    weights: dict[str, torch.Tensor], words: list[str], text_encoder_heads: int | None = None
) -> tuple[RSTNetForConditionalGeneration, PreTrainedTokenizerFast, list[str]]:
    """Converts a state dict of the release's captioner to a captioner and its tokenizer.

    Returns:
        The captioner, the tokenizer, and the names of weights that were left out.

    Raises:
        ConversionError: weights are missing, unknown or of a wrong shape, or the vocabulary has another size.
    """
    tokens = {f"{name}_id": words.index(token) for name, token in SPECIAL_TOKENS.items() if name != "unk_token"}
    tokens["decoder_start_token_id"] = tokens["bos_token_id"]
    rows = size(weights, "decoder.word_emb.weight", 0)
    if rows != len(words):
        raise ConversionError(
            f"The vocabulary has {len(words)} words, but decoder.word_emb.weight has {rows} rows; they do not belong "
            "together."
        )
    config = captioner_config(weights, tokens, text_encoder_heads)
    model: Any
    model, left_out = convert(RSTNetForConditionalGeneration, config, joined_heads(weights), theirs, LEFT_OUT)
    longest = min(MAX_CAPTION_LENGTH, config.max_position_embeddings)
    defaults = {name: token for name, token in tokens.items() if name != "decoder_start_token_id"}
    model.generation_config = GenerationConfig(
        num_beams=BEAMS,
        length_penalty=0.0,
        max_new_tokens=longest,
        decoder_start_token_id=tokens["decoder_start_token_id"],
        **defaults,
    )
    return model, make_tokenizer(words), left_out


def make_tokenizer(words: list[str]) -> PreTrainedTokenizerFast:
    """Makes a tokenizer from a vocabulary: words in the order of their ids, including special tokens."""
    vocabulary = {word: index for index, word in enumerate(words)}
    backend = Tokenizer(models.WordLevel(vocabulary, unk_token=SPECIAL_TOKENS["unk_token"]))
    backend.normalizer, backend.pre_tokenizer = NORMALIZER, pre_tokenizers.WhitespaceSplit()
    return with_ends(backend, 64, {}, SPECIAL_TOKENS)


def heads_beside(checkpoint: str | Path) -> int | None:
    """Returns the number of BERT's attention heads in `config.json` next to a checkpoint, if it is there.

    Raises:
        ConversionError: the value is not a valid number of heads.
    """
    path = Path(checkpoint).parent / "config.json"
    try:
        number = json.loads(path.read_bytes())["bert"]["num_attention_heads"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):  # another kind of file
        return None
    if type(number) is not int or number < 1:
        raise ConversionError(f"{path}: bert.num_attention_heads is {number!r}; it must be a whole number above 0.")
    return number


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line: reads, converts, writes and reports; returns 0, or 2 after an error."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--captioner", required=True, metavar="FILE.pth", help="checkpoint of the captioner")
    parser.add_argument("--language-model", metavar="FILE.pth", help="checkpoint of the separate language model")
    parser.add_argument("--vocab", required=True, metavar="FILE.pkl", help="pickled vocabulary")
    parser.add_argument("--text-encoder-heads", type=int, metavar="N", help="attention heads of BERT")
    return run_conversion(parser, arguments, convert_files)


def convert_files(options: argparse.Namespace) -> str:
    """Reads, converts and writes the checkpoints in the options; returns the report."""
    words = load_words(options.vocab)
    weights = load_state_dict(options.captioner)
    heads = options.text_encoder_heads or heads_beside(options.captioner)
    captioner, tokenizer, left_out = convert_captioner(weights, words, heads)
    lines = report(weights, left_out, options.captioner)
    language_model = None
    if options.language_model is not None:
        language_weights = load_state_dict(options.language_model)
        config = language_model_config(language_weights, captioner.config, heads)
        language_model, left = convert(
            RSTNetLanguageModel, config, language_weights, theirs_in_language_model, LEFT_OUT
        )
        lines += report(language_weights, left, options.language_model)

    def write(folder: Path) -> None:
        processor = RSTNetProcessor(tokenizer=tokenizer)
        save_model(captioner, processor, folder)
        if language_model is not None:
            save_model(language_model, processor, folder / "language_model")

    with without_weight_bars():
        replace_folder_contents(Path(options.output).absolute(), write)
    text_encoder = captioner.config.language_model_config.text_encoder_config
    lines.append(
        f"The captioner, {len(captioner.state_dict())} weights, is in {options.output}; its BERT has "
        f"{text_encoder.num_attention_heads} attention heads (change this with --text-encoder-heads)."
    )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
