"""The authors' MHSAN: recorded outputs of released checkpoints, and invalid files."""

import json

import convert_mhsan
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoProcessor

from hf_ngsan.metrics.retrieval import retrieval_metrics
from tests.golden import golden_folder
from tests.tables import each_row

RELEASES = ("2.1.4", "2.6.0")


def close(ours: torch.Tensor, recorded: torch.Tensor) -> None:
    torch.testing.assert_close(ours, recorded, atol=1e-5, rtol=1e-5)


@pytest.fixture(scope="module")
def converted(tmp_path_factory):
    """Folder, recorded tensors, model and processor of each release, converted by the command line."""
    actual = {}
    for release in RELEASES:
        source, folder = golden_folder("mhsan"), tmp_path_factory.mktemp("mhsan") / release
        options = ["--checkpoint", source / f"tiny_sru-{release}_checkpoint.pth.tar", "--output", folder]
        options += ["--dictionary", source / "dictionary.txt", "--word-vectors", source / "utable.npy"]
        assert convert_mhsan.main(list(map(str, options))) == 0
        recorded = load_file(source / f"io_sru-{release}.safetensors")
        actual[release] = recorded, AutoModel.from_pretrained(folder).eval(), AutoProcessor.from_pretrained(folder)
    return actual


def mask_of(lengths: torch.Tensor, length: int) -> torch.Tensor:
    return (torch.arange(length) < lengths[:, None]).long()


@each_row("release", RELEASES)
@torch.no_grad()
def test_converted_checkpoints_compute_what_the_released_code_did(converted, release):
    recorded, model, processor = converted[release]
    captions = json.loads((golden_folder("mhsan") / "captions.json").read_text())
    words = processor(text=[" ".join(tokens) for tokens in captions["tokens"]])
    mask = mask_of(recorded["main.caption_lengths"], recorded["main.caption_vectors"].shape[1])
    assert torch.equal(words["attention_mask"], mask)
    ids = [row[:number].tolist() for row, number in zip(words["input_ids"], mask.sum(1), strict=True)]
    assert ids == captions["ids"]
    output = model(pixel_values=recorded["main.images"], **words, return_loss=True)
    close(output.image_embeds, recorded["main.image_embedding"])
    close(output.text_embeds, recorded["main.text_embedding"])
    close(output.vision_model_output.attentions[-1], recorded["main.image_attention"])
    close(output.text_model_output.attentions[-1], recorded["main.text_attention"])
    close(output.vision_model_output.last_hidden_state, recorded["main.image_spaconv"].flatten(2).mT)
    close(output.text_model_output.last_hidden_state[mask == 1], recorded["main.text_rnn"][mask == 1])
    close(output.loss, recorded["loss.total"])

    other = model.get_image_features(recorded["other_size.images"])
    close(other.pooler_output, recorded["other_size.image_embedding"])
    close(other.attentions[-1], recorded["other_size.image_attention"])


@each_row("release", RELEASES)
@torch.no_grad()
def test_the_released_mask_leaves_out_the_last_word_for_a_component_of_0(converted, release):
    """With that mask the outputs are equal; without it, all words count."""
    recorded, model, _ = converted[release]
    vectors = recorded["zero_component.caption_vectors"]
    released_mask = mask_of((vectors[..., 0] != 0).sum(1), vectors.shape[1])
    texts = model.get_text_features(inputs_embeds=vectors, attention_mask=released_mask)
    close(texts.pooler_output, recorded["zero_component.text_embedding"])
    close(texts.attentions[-1], recorded["zero_component.text_attention"])
    true_mask = mask_of(recorded["zero_component.caption_lengths"], vectors.shape[1])
    assert not torch.equal(released_mask, true_mask)
    texts = model.get_text_features(inputs_embeds=vectors, attention_mask=true_mask)
    assert (texts.pooler_output - recorded["zero_component.text_embedding"]).abs().max() > 1e-3


def test_recalls_of_the_released_code():
    """The released code counts ranks from 0."""
    recorded = load_file(golden_folder("mhsan") / "metrics.safetensors")
    scores = retrieval_metrics(recorded["recall.scores"])
    for direction, name in (("image_to_text", "caption_retrieval"), ("text_to_image", "image_retrieval")):
        actual = [scores[f"{direction}_r{k}"] for k in (1, 5, 10)]
        assert actual == pytest.approx(recorded[f"recall.{name}"].tolist(), abs=1e-5)
    ranks = [scores[f"{direction}_median_rank"] - 1 for direction in ("image_to_text", "text_to_image")]
    assert ranks == recorded["recall.median_ranks"].tolist()


def released_weights() -> dict[str, torch.Tensor]:
    """A state dict with the authors' names, one block per stage, without the prefix of `DataParallel`."""
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator) / 10

    def norm(name: str, size: int) -> dict:
        return {f"{name}.{field}": torch.ones(size) for field in ("weight", "bias", "running_mean", "running_var")}

    base, weights = "img_emb.base_layer", {}
    weights |= {f"{base}.0.weight": random(4, 3, 7, 7), **norm(f"{base}.1", 4)}
    inputs = 4
    for stage, size in enumerate((16, 32, 64, 128)):
        block, inner = f"{base}.{4 + stage}.0", size // 4
        for number, shape in enumerate([(inner, inputs, 1, 1), (inner, inner, 3, 3), (size, inner, 1, 1)], start=1):
            weights |= {f"{block}.conv{number}.weight": random(*shape), **norm(f"{block}.bn{number}", shape[0])}
        weights |= {f"{block}.downsample.0.weight": random(size, inputs, 1, 1), **norm(f"{block}.downsample.1", size)}
        inputs = size
    weights |= {"img_emb.spaConv.weight": random(6, 128, 1, 1), "img_emb.spaConv.bias": random(6)}
    weights |= {"img_emb.fc1.weight": random(5, 6), "img_emb.fc2.weight": random(2, 5)}
    weights |= {"fc.weight": random(7, 12), "fc.bias": random(7)}
    for layer, columns in enumerate((4, 3)):
        prefix = f"cap_emb.rnn.rnn_lst.{layer}"
        weights |= {f"{prefix}.weight": random(3 if layer == 0 else 8, columns * 8), f"{prefix}.weight_c": random(16)}
        weights |= {f"{prefix}.bias": random(16), f"{prefix}.scale_x": torch.ones(1)}
    weights |= {"cap_emb.ws1.weight": random(5, 8), "cap_emb.ws2.weight": random(2, 5)}
    return weights | {"cap_emb.fc.weight": random(7, 16), "cap_emb.fc.bias": random(7)}


def test_sizes_come_from_the_weights_and_directions_from_the_person():
    vectors = torch.rand(9, 3)
    item, both = (
        convert_mhsan.convert_weights(released_weights(), vectors, directions) for directions in (False, True)
    )
    text = both.config.text_config
    assert (text.hidden_size, text.num_hidden_layers, text.vocab_size, text.pad_token_id) == (8, 2, 10, 9)
    assert (both.config.hidden_size, both.config.projection_dim, both.config.num_image_heads) == (6, 7, 2)
    words = torch.tensor([[1, 2, 3]])
    first, second = (model.get_text_features(words).last_hidden_state for model in (item, both))
    torch.testing.assert_close(first[:, 0, :0], second[:, 0, :0])
    assert not torch.allclose(first, second)
    with_parallel = {name.replace("_emb.", "_emb.module."): value for name, value in released_weights().items()}
    again = convert_mhsan.convert_weights(with_parallel, vectors)
    assert torch.equal(again.get_text_features(words).last_hidden_state, first)


def test_the_last_line_of_a_word_is_the_one_as_in_the_release():
    tokenizer = convert_mhsan.make_tokenizer(["a", "UNK", "dog", " a ", "."])
    assert tokenizer("a Dog . dog,")["input_ids"] == [3, 1, 4, 2, 1]
    assert (tokenizer.pad_token_id, len(tokenizer)) == (5, 5)
