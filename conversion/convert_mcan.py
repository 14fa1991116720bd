"""Convert a checkpoint of the authors' MCAN (MILVLG/mcan-vqa) into a model folder of this package.

    python conversion/convert_mcan.py --checkpoint epoch13.pkl --config small_model.yml \\
        --questions train_questions.json val_questions.json test_questions.json \\
        --answers answer_dict.json --output mcan

Sizes are read from the weights of the small, the large or any other model. The weights do not contain the number of
heads (`MULTI_HEAD` in the configuration file of the release, 8 by default), the words and the answers. The release
numbers words in the order of their first occurrence in its question files: train, val, test and Visual Genome, in this
order; a saved `--vocabulary` replaces these files. Answers are in `answer_dict.json` of the release. The state of the
optimizer is left out.
"""

import argparse
import json
import re
import sys
from pathlib import Path
from typing import Any

import torch
import yaml
from state_dicts import ConversionError, convert, load_state_dict, run_conversion, save_with_processor

from hf_ngsan.data.question_answering import read_questions
from hf_ngsan.data.vocabulary import PADDING, UNKNOWN, build_question_tokenizer, make_question_tokenizer
from hf_ngsan.models.configuration_mcan import MCANConfig
from hf_ngsan.models.modeling_mcan import MCANForVisualQuestionAnswering
from hf_ngsan.models.processing_mcan import MCANProcessor

NUM_HEADS, LONGEST_QUESTION = 8, 14
"""`MULTI_HEAD` and `MAX_TOKEN` of the release."""
SPECIAL = {"PAD": PADDING, "UNK": UNKNOWN}
ATTENTION = {"q_proj": "linear_q", "k_proj": "linear_k", "v_proj": "linear_v", "out_proj": "linear_merge"}
FEED_FORWARD = {"up": "mlp.fc.linear", "down": "mlp.linear"}
NORM = {"weight": "a_2", "bias": "b_2"}
REDUCTION = {"hidden": "mlp.fc.linear", "scores": "mlp.linear", "out_proj": "linear_merge"}
LAYER_PARTS = {
    "encoder": {"self_attn": "mhatt", "self_attn_norm": "norm1", "feed_forward": "ffn", "feed_forward_norm": "norm2"},
    "decoder": {
        "self_attn": "mhatt1",
        "self_attn_norm": "norm1",
        "encoder_attn": "mhatt2",
        "encoder_attn_norm": "norm2",
        "feed_forward": "ffn",
        "feed_forward_norm": "norm3",
    },
}
MODULES = {
    "encoder.embed_tokens": "embedding",
    "encoder.lstm": "lstm",
    "decoder.input_proj": "img_feat_linear",
    "classifier": "proj",
}
REDUCTIONS = {"question_reduction": "attflat_lang", "image_reduction": "attflat_img"}


def source_name(ours: str) -> str:
    """Returns the name in the release of a weight of this package."""
    ours = ours.removeprefix("model.")
    module, _, field = ours.rpartition(".")
    if module in MODULES:
        return f"{MODULES[module]}.{field}"
    if module == "norm":
        return f"proj_norm.{NORM[field]}"
    first, *rest = ours.split(".")
    if first in REDUCTIONS:
        return f"{REDUCTIONS[first]}.{REDUCTION[rest[0]]}.{field}"
    _, number, part, *inner = rest
    place = f"backbone.{first[:3]}_list.{number}.{LAYER_PARTS[first][part]}"
    if part.endswith("_norm"):
        return f"{place}.{NORM[field]}"
    return f"{place}.{(FEED_FORWARD if part == 'feed_forward' else ATTENTION)[inner[0]]}.{field}"


def convert_weights(
    weights: dict[str, torch.Tensor], answers: list[str] | None = None, num_attention_heads: int = NUM_HEADS
) -> MCANForVisualQuestionAnswering:
    """Converts a state dict of the authors' code to a model.

    Args:
        weights: weights of a checkpoint, without the prefix of `DataParallel`.
        answers: answers in the order of their numbers; `None` uses the numbers as answers.
        num_attention_heads: number of heads, which the weights do not contain.

    Raises:
        ConversionError: the state dict is of another model or damaged, or the number of answers is wrong.
    """
    layers = [re.match(r"backbone\.dec_list\.(\d+)\.mhatt1\.linear_q\.weight$", name) for name in weights]
    num_layers = 1 + max((int(match[1]) for match in layers if match), default=-1)
    sized = ("embedding", "img_feat_linear", "proj", "attflat_img.mlp.fc.linear", "attflat_img.mlp.linear")
    for name in (*(f"{module}.weight" for module in sized), "backbone.dec_list.0.ffn.mlp.fc.linear.weight"):
        if name not in weights or weights[name].ndim != 2:
            raise ConversionError(f"The checkpoint has no matrix {name}; it is not an MCAN checkpoint.")
    num_answers, pooled_size = weights["proj.weight"].shape
    if answers is not None and len(answers) != num_answers:
        raise ConversionError(f"There are {len(answers)} answers, but the checkpoint chooses among {num_answers}.")
    hidden_size = len(weights["img_feat_linear.weight"])
    if num_attention_heads < 1 or hidden_size % num_attention_heads:
        raise ConversionError(f"The hidden size {hidden_size} is not a multiple of {num_attention_heads} heads.")
    vocab_size, word_embedding_size = weights["embedding.weight"].shape
    labels = dict(enumerate(answers or map(str, range(num_answers))))
    config = MCANConfig(
        vocab_size=vocab_size,
        word_embedding_size=word_embedding_size,
        visual_feature_size=weights["img_feat_linear.weight"].shape[1],
        hidden_size=hidden_size,
        num_hidden_layers=num_layers,
        num_attention_heads=num_attention_heads,
        intermediate_size=len(weights["backbone.dec_list.0.ffn.mlp.fc.linear.weight"]),
        reduction_hidden_size=len(weights["attflat_img.mlp.fc.linear.weight"]),
        num_glimpses=len(weights["attflat_img.mlp.linear.weight"]),
        pooled_size=pooled_size,
        loss_reduction="sum",
        id2label=labels,
        label2id={text: number for number, text in labels.items()},
    )
    model, _ = convert(MCANForVisualQuestionAnswering, config, weights, source_name)
    return model


def read_settings(path: str | Path) -> dict[str, Any]:
    """Reads a configuration file of the release, in YAML or JSON.

    Raises:
        OSError: the file cannot be read.
        ConversionError: it is not a table of settings.
    """
    settings = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    if not isinstance(settings, dict):
        raise ConversionError(f"{path} is not a table of settings, such as MULTI_HEAD: 8.")
    return settings


def read_numbered(path: str | Path, key: str) -> list[str]:
    """Reads words or answers with their numbers; returns them in the order of the numbers.

    Args:
        path: a JSON file with a mapping from texts to the numbers 0, 1, 2, ..., a list whose first item is such a
            mapping, as in `answer_dict.json` of the release, or a mapping that contains it under `key`.
        key: `token_to_ix` or `answer_to_ix`.

    Raises:
        OSError: the file cannot be read.
        ConversionError: the file has other contents.
    """
    content = json.loads(Path(path).read_text(encoding="utf-8"))
    if isinstance(content, list) and content:
        content = content[0]
    if isinstance(content, dict) and isinstance(content.get(key), dict):
        content = content[key]
    is_numbered = isinstance(content, dict) and all(type(number) is int for number in content.values())
    if not is_numbered or sorted(content.values()) != list(range(len(content))):
        raise ConversionError(f"{path} must map texts to the numbers 0, 1, 2, ..., each once.")
    return sorted(content, key=content.__getitem__)


def convert_files(
    checkpoint: str | Path,
    answers: str | Path,
    questions: list[str] | None = None,
    vocabulary: str | Path | None = None,
    config: str | Path | None = None,
) -> tuple[MCANForVisualQuestionAnswering, MCANProcessor]:
    """Reads and converts a checkpoint, its words and its answers; see the command line.

    Raises:
        OSError, ValueError: a file cannot be read or has other contents, or files are inconsistent.
    """
    settings = {} if config is None else read_settings(config)
    weights, texts = load_state_dict(checkpoint), read_numbered(answers, "answer_to_ix")
    longest = settings.get("MAX_TOKEN", LONGEST_QUESTION)
    if vocabulary is not None:
        words = read_numbered(vocabulary, "token_to_ix")
        if words[:2] != list(SPECIAL):
            raise ConversionError(f"{vocabulary} must begin with PAD, number 0, and UNK, number 1.")
        tokenizer = make_question_tokenizer([SPECIAL.get(word, word) for word in words], max_length=longest)
    else:
        asked = [row["question"] for path in questions or [] for row in read_questions([Path(path)], None)]
        tokenizer = build_question_tokenizer(asked, max_length=longest)
    model = convert_weights(weights, texts, settings.get("MULTI_HEAD", NUM_HEADS))
    if len(tokenizer) != model.config.vocab_size:
        raise ConversionError(
            f"There are {len(tokenizer)} words, including padding and the unknown word, but the checkpoint has vectors "
            f"of {model.config.vocab_size}; pass the question files of the training in their order."
        )
    return model, MCANProcessor(tokenizer=tokenizer)


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line: reads, converts, writes and reports; returns 0, or 2 after an error."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--checkpoint", required=True, metavar="FILE.pkl", help="checkpoint of the authors' training script"
    )
    parser.add_argument("--config", metavar="FILE.yml", help="configuration of the release, for MULTI_HEAD, MAX_TOKEN")
    words = parser.add_mutually_exclusive_group(required=True)
    words.add_argument("--questions", nargs="+", metavar="FILE.json", help="question files of VQA, in the order of use")
    words.add_argument("--vocabulary", metavar="FILE.json", help="a saved mapping from words to numbers")
    parser.add_argument("--answers", required=True, metavar="FILE.json", help="answers with their numbers")

    def convert(options: argparse.Namespace) -> str:
        names = ("checkpoint", "answers", "questions", "vocabulary", "config")
        model, processor = convert_files(*(getattr(options, name) for name in names))
        save_with_processor(model, processor, options.output)
        return (
            f"The model is in {options.output}: all {len(model.state_dict())} weights of the checkpoint, "
            f"{model.config.vocab_size} words and {model.config.num_labels} answers. Other contents of the file, "
            "such as the state of the optimizer, were left out."
        )

    return run_conversion(parser, arguments, convert)


if __name__ == "__main__":
    sys.exit(main())
