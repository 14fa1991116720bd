"""Convert a checkpoint of the authors' MHSAN (GeondoPark/MHSAN) into a model folder of this package.

    python conversion/convert_mhsan.py --checkpoint model_best.pth.tar --dictionary dictionary.txt \\
        --word-vectors utable.npy --output mhsan

All sizes are read from the weights, for checkpoints from any release of `sru`. The weights do not show whether the
recurrent units read in both directions, as in the 10-head model for Flickr30K: use `--bidirectional` for these. As in
the release, words are case-sensitive, punctuation marks are words, and contractions are split by the rules of nltk.
Losses are those of the release: summed over the batch, with an unsquared diversity penalty.
"""

import argparse
import re
import sys
from pathlib import Path

import numpy as np
import torch
from convert_torchvision_backbone import resnet_source_name
from state_dicts import ConversionError, convert, load_state_dict, run_conversion, save_with_processor
from tokenizers import Regex, Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from hf_ngsan.models.configuration_mhsan import MHSANConfig
from hf_ngsan.models.image_processing_captioning import CaptioningImageProcessor
from hf_ngsan.models.modeling_mhsan import MHSANModel
from hf_ngsan.models.processing_mhsan import MHSANProcessor

IMAGES, TEXTS = "img_emb.", "cap_emb."
RESNET = {"0": "conv1", "1": "bn1", "4": "layer1", "5": "layer2", "6": "layer3", "7": "layer4"}
"""Children of torchvision's ResNet by their number in `base_layer`."""
MODULES = {
    "image_states": f"{IMAGES}spaConv",
    "image_pooling.hidden": f"{IMAGES}fc1",
    "image_pooling.scores": f"{IMAGES}fc2",
    "image_projection": "fc",
    "text_pooling.hidden": f"{TEXTS}ws1",
    "text_pooling.scores": f"{TEXTS}ws2",
    "text_projection": f"{TEXTS}fc",
}
WORD_VECTORS = "utable"
UNKNOWN, PADDING = "UNK", "<pad>"
WORDS = r"\w+(?=n't\b)|n't\b|'(?:s|m|d|re|ve|ll)\b|\w+(?:[-.]\w+)*|[^\w\s]"
IMAGE_SIDE = 350
MAX_TEXT_LENGTH = 128
LOSSES = {"loss_reduction": "sum", "squared_diversity": False, "negated_positives": True}


def convert_weights(weights: dict[str, torch.Tensor], vectors: torch.Tensor, bidirectional: bool = False) -> MHSANModel:
    """Converts a state dict of the authors' code to a model.

    Args:
        weights: weights of a checkpoint, with or without the names of `DataParallel`.
        vectors: `(words, size)`, one for each line of the dictionary; padding becomes an extra word.
        bidirectional: whether the recurrent units read in both directions.

    Raises:
        ConversionError: the state dict is of another model or damaged, or the vectors have another size.
    """
    weights = {name.replace(".module.", "."): value for name, value in weights.items()}
    need(weights, f"{TEXTS}rnn.rnn_lst.0.weight_c", 1)
    for module in MODULES.values():
        need(weights, f"{module}.weight", 4 if module.endswith("spaConv") else 2)
    weights, text = recurrent_weights(weights, bidirectional)
    if vectors.ndim != 2 or vectors.shape[1] != text["word_embedding_size"]:
        raise ConversionError(
            f"The word vectors have the shape {tuple(vectors.shape)}, but the model takes vectors of "
            f"{text['word_embedding_size']} numbers."
        )
    weights[WORD_VECTORS] = torch.cat([vectors.float(), vectors.new_zeros(1, vectors.shape[1]).float()])
    weights[f"{IMAGES}spaConv.weight"] = weights[f"{IMAGES}spaConv.weight"].flatten(1)
    config = MHSANConfig(
        vision_config={"backbone_config": resnet_config(weights)},
        text_config={**text, "vocab_size": len(vectors) + 1, "pad_token_id": len(vectors)},
        hidden_size=len(weights[f"{IMAGES}spaConv.weight"]),
        projection_dim=len(weights["fc.weight"]),
        attention_hidden_size=len(weights[f"{IMAGES}fc1.weight"]),
        num_image_heads=len(weights[f"{IMAGES}fc2.weight"]),
        num_text_heads=len(weights[f"{TEXTS}ws2.weight"]),
        **LOSSES,
    )
    model, _ = convert(MHSANModel, config, weights, source_name)
    return model


def need(weights: dict[str, torch.Tensor], name: str, ndim: int) -> None:
    """Raises a ConversionError unless a checkpoint has a weight with `ndim` dimensions."""
    if name not in weights:
        raise ConversionError(f"The checkpoint lacks {name}; is it an MHSAN checkpoint with a ResNet?")
    if weights[name].ndim != ndim:
        raise ConversionError(f"{name} has the shape {tuple(weights[name].shape)}; it must have {ndim} dimensions.")


def recurrent_weights(weights: dict[str, torch.Tensor], bidirectional: bool) -> tuple[dict[str, torch.Tensor], dict]:
    """Returns weights with the matrices of recurrent units in this package's order, and the resulting `text_config`.

    Columns in the release are ordered (direction, unit, matrix), rows in this package (matrix, direction, unit).
    """
    weights, layers, scales, matrices = dict(weights), 0, set(), []
    while (name := f"{TEXTS}rnn.rnn_lst.{layers}.weight_c") in weights:
        prefix = name.removesuffix("weight_c")
        for field, ndim in (("weight", 2), ("bias", 1), ("weight_c", 1)):
            need(weights, prefix + field, ndim)
        size = len(weights[name]) // 2
        matrix = weights[f"{prefix}weight"]
        halves = {len(weights[name]), len(weights[f"{prefix}bias"])}
        if not size or matrix.shape[1] % size or halves != {2 * size}:
            raise ConversionError(f"{prefix}weight has the shape {tuple(matrix.shape)}, which does not match {name}.")
        weights[f"{prefix}weight"] = matrix.unflatten(1, (size, -1)).permute(2, 1, 0).flatten(0, 1)
        for field in ("weight_c", "bias"):
            weights[prefix + field] = weights[prefix + field].unflatten(0, (2, size))
        scale = weights.pop(f"{prefix}scale_x", torch.ones(1))
        scales.add(float(scale))
        matrices.append((*matrix.shape, size))
        layers += 1
    if len(scales) > 1:
        raise ConversionError(
            f"The layers' scale_x differ ({', '.join(map(str, sorted(scales)))}); they must be equal."
        )
    input_size, columns, size = matrices[0]
    return weights, {
        "word_embedding_size": input_size,
        "hidden_size": size,
        "num_hidden_layers": layers,
        "bidirectional": bidirectional,
        "highway": input_size == size or columns == 4 * size,
        "scale_x": scales.pop(),
    }


def resnet_config(weights: dict[str, torch.Tensor]) -> dict:
    """Returns the `backbone_config` of a ResNet with bottleneck blocks from its weights."""
    blocks = [re.match(rf"{re.escape(IMAGES)}base_layer\.([4-7])\.(\d+)\.conv3\.weight$", name) for name in weights]
    depths = [sum(1 for match in blocks if match and match[1] == str(stage)) for stage in range(4, 8)]
    sized = [f"{IMAGES}base_layer.0.weight", *(f"{IMAGES}base_layer.{stage}.0.conv3.weight" for stage in range(4, 8))]
    for name in sized:
        need(weights, name, 4)
    stem, *sizes = (len(weights[name]) for name in sized)
    return {
        "model_type": "resnet",
        "embedding_size": stem,
        "hidden_sizes": sizes,
        "depths": depths,
        "layer_type": "bottleneck",
        "out_features": ["stage4"],
    }


def source_name(ours: str) -> str:
    if ours.startswith("vision.backbone."):
        module, _, rest = resnet_source_name(ours.removeprefix("vision.backbone.")).partition(".")
        return f"{IMAGES}base_layer.{next(number for number, name in RESNET.items() if name == module)}.{rest}"
    if ours.startswith("text.sru.layers."):
        _, _, _, layer, *name = ours.split(".")
        theirs = {"projection.weight": "weight", "peephole": "weight_c", "bias": "bias"}[".".join(name)]
        return f"{TEXTS}rnn.rnn_lst.{layer}.{theirs}"
    if ours == "text.embed_tokens.weight":
        return WORD_VECTORS
    module, _, field = ours.rpartition(".")
    return f"{MODULES[module]}.{field}"


def read_word_vectors(path: str | Path) -> torch.Tensor:
    """Reads an array of numbers without running code from its file.

    Raises:
        OSError: the file cannot be read.
        ConversionError: the file does not contain an array of numbers.
    """
    array = np.load(path, allow_pickle=False)
    if array.ndim != 2 or array.dtype.kind != "f":
        raise ConversionError(f"{path} must contain one array of floating point numbers, (words, size).")
    return torch.from_numpy(array.astype(np.float32))


def make_tokenizer(lines: list[str]) -> PreTrainedTokenizerFast:
    """Makes a tokenizer whose ids are the line numbers of a dictionary; the last line of a repeated word is used.

    Raises:
        ConversionError: the dictionary has no token for unknown words.
    """
    vocabulary = {line.strip(): index for index, line in enumerate(lines)}
    if UNKNOWN not in vocabulary:
        raise ConversionError(f"The dictionary has no line {UNKNOWN}, the token for unknown words.")
    backend = Tokenizer(models.WordLevel({**vocabulary, PADDING: len(lines)}, unk_token=UNKNOWN))
    backend.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(WORDS), behavior="isolated"), pre_tokenizers.WhitespaceSplit()]
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        pad_token=PADDING,
        unk_token=UNKNOWN,
        model_max_length=MAX_TEXT_LENGTH,
        clean_up_tokenization_spaces=False,
        model_input_names=["input_ids", "attention_mask"],
    )


def convert_files(
    checkpoint: str | Path, dictionary: str | Path, word_vectors: str | Path, bidirectional: bool = False
) -> tuple[MHSANModel, MHSANProcessor]:
    """Reads and converts a checkpoint, its dictionary and its table of word vectors.

    Raises:
        OSError, ConversionError: a file cannot be read or has other contents, or files are inconsistent.
    """
    weights, vectors = load_state_dict(checkpoint), read_word_vectors(word_vectors)
    lines = Path(dictionary).read_text(encoding="utf-8").splitlines()
    if len(lines) != len(vectors):
        raise ConversionError(f"{dictionary} has {len(lines)} lines, but {word_vectors} {len(vectors)} word vectors.")
    model = convert_weights(weights, vectors, bidirectional)
    images = CaptioningImageProcessor(size={"height": IMAGE_SIDE, "width": IMAGE_SIDE})
    return model, MHSANProcessor(image_processor=images, tokenizer=make_tokenizer(lines))


def main(arguments: list[str] | None = None) -> int:
    """Runs the command line: reads, converts, writes and reports; returns 0, or 2 after an error."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--checkpoint", required=True, metavar="FILE", help="checkpoint of the authors' training script"
    )
    parser.add_argument("--dictionary", required=True, metavar="FILE.txt", help="list of words, one per line")
    parser.add_argument("--word-vectors", required=True, metavar="FILE.npy", help="a vector for each word")
    parser.add_argument("--bidirectional", action="store_true", help="the recurrent units read in both directions")

    def convert(options: argparse.Namespace) -> str:
        files = (options.checkpoint, options.dictionary, options.word_vectors)
        model, processor = convert_files(*files, options.bidirectional)
        save_with_processor(model, processor, options.output)
        numbers = f"{len(model.state_dict())} weights and {model.config.vocab_size} words"
        return f"The model, {numbers}, is in {options.output}."

    return run_conversion(parser, arguments, convert)


if __name__ == "__main__":
    sys.exit(main())
