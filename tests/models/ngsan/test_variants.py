"""Every row of the paper's tables: its parameters, its size, and the effect of boxes and of the order of regions."""

import math

import torch

from hf_ngsan.models.configuration_ngsan import NGSANConfig
from hf_ngsan.models.modeling_ngsan import NGSANForConditionalGeneration
from tests.models.architectures import CLOSE, logits_of
from tests.models.ngsan.variants import FAMILY, REPRESENTATIVES
from tests.models.tiny import FEATURE_SIZE, random_images, tiny_captioner
from tests.tables import each_row

LENGTHS = [6, 1, 2, 4]


@each_row("name", REPRESENTATIVES)
def test_every_parameter_of_every_variant_learns(name):
    model = tiny_captioner(num_hidden_layers=1, **REPRESENTATIVES[name]).train()
    images = random_images([5, 3])
    words = torch.tensor([[5, 6, 7, 2], [8, 9, 2, -100]])
    model(**images, labels=words).loss.backward()
    for parameter_name, parameter in model.named_parameters():
        assert parameter.grad is not None, parameter_name
        assert parameter.grad.isfinite().all(), parameter_name
        # Softmax ignores what all keys have in common, and a norm over regions what all queries have in common.
        if not parameter_name.endswith(("k_proj.bias", "q_proj.bias", "key_norm.bias", "key_norm.affine.shift")):
            assert parameter.grad.abs().sum() > 1e-3, parameter_name


def count_parameters(**fields) -> int:
    with torch.device("meta"):
        return NGSANForConditionalGeneration(NGSANConfig(**fields)).num_parameters()


@each_row(("num_hidden_layers", "millions"), [(1, 18.1), (2, 25.5), (4, 40.2), (6, 54.9)])
def test_san_has_the_sizes_of_the_paper(num_hidden_layers, millions):
    count = count_parameters(**FAMILY["SAN"], num_hidden_layers=num_hidden_layers)
    assert round(count / 1e6, 1) == millions


def test_geometry_adds_the_parameters_of_the_paper():
    san = count_parameters(**FAMILY["SAN"])
    assert count_parameters(**FAMILY["N-SAN"]) == san, "instance normalization has no parameters"
    assert round(count_parameters(geometry_hidden_size=80) / 1e6, 1) == 41.5
    assert round(count_parameters(geometry_hidden_size=64) / 1e6, 2) == 41.25
    content_only = count_parameters(geometric_bias=["content"]) - san
    embedding, per_layer = 4 * 64 + 64, 64 * 8 + 8
    assert content_only == embedding + 4 * per_layer == 2400
    assert count_parameters(norm_affine=True) - count_parameters() == 4 * 2 * 512
    assert count_parameters(absolute_geometry=True) == count_parameters()


def test_tying_shares_one_matrix_and_only_when_asked_for(tmp_path):
    for tied in (True, False):
        model = tiny_captioner(tie_word_embeddings=tied)
        model.save_pretrained(tmp_path / str(tied))
        for item in (model, NGSANForConditionalGeneration.from_pretrained(tmp_path / str(tied))):
            assert (item.lm_head.weight is item.get_input_embeddings().weight) is tied
    assert count_parameters() - count_parameters(tie_word_embeddings=True) == 9491 * 512


def test_temporal_positions_are_sinusoids_of_places():
    model = tiny_captioner(geometric_bias=[], temporal_positions=True, num_hidden_layers=1)
    features, seen = torch.randn(1, 4, FEATURE_SIZE), []
    encoder, size = model.model.encoder, model.config.hidden_size
    encoder.layers[0].register_forward_pre_hook(lambda layer, inputs: seen.append(inputs[0]))
    encoder(visual_features=features)
    projected = torch.relu(encoder.input_proj(features))
    for place in range(4):
        angles = [place / 10000 ** (2 * channel / size) for channel in range(size // 2)]
        sinusoids = torch.tensor([math.sin(angle) for angle in angles] + [math.cos(angle) for angle in angles])
        torch.testing.assert_close(seen[0][0, place], projected[0, place] + sinusoids)


@each_row("name", REPRESENTATIVES)
def test_order_of_regions_changes_nothing(name):
    model, images = tiny_captioner(**REPRESENTATIVES[name]), random_images(LENGTHS)
    order = torch.randperm(max(LENGTHS), generator=torch.Generator().manual_seed(3))
    permuted = {key: tensor[:, order] for key, tensor in images.items()}
    torch.testing.assert_close(logits_of(model, permuted), logits_of(model, images), **CLOSE)


def test_only_signed_geometry_sees_that_a_layout_is_mirrored():
    images = random_images(LENGTHS)
    mirrored = {**images, "visual_boxes": (1 - images["visual_boxes"])[..., [2, 1, 0, 3]]}
    mirrored["visual_boxes"][..., [1, 3]] = images["visual_boxes"][..., [1, 3]]
    unsigned, signed = tiny_captioner(), tiny_captioner(geometry_features="signed")
    torch.testing.assert_close(logits_of(unsigned, mirrored), logits_of(unsigned, images), rtol=1e-3, atol=1e-3)
    assert (logits_of(signed, mirrored) - logits_of(signed, images)).abs().max() > 0.1
