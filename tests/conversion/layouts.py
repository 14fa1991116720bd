"""Random state dicts in the layouts of torchvision and detectron2, and plain functions that compute what they mean.

Both are written from the published architectures, tensor by tensor; nothing of the package is used.
"""

import torch
from torch.nn import functional

DEPTHS = {50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}
VGG_11 = (64, "pool", 128, "pool", 256, 256, "pool", 512, 512, "pool", 512, 512, "pool")


def random_convolution(out_channels: int, in_channels: int, size: int) -> torch.Tensor:
    return torch.randn(out_channels, in_channels, size, size) * (2 / (in_channels * size**2)) ** 0.5


def random_norm(channels: int) -> dict[str, torch.Tensor]:
    return {
        "weight": 0.4 + 0.4 * torch.rand(channels),
        "bias": 0.2 * torch.randn(channels),
        "running_mean": 0.2 * torch.randn(channels),
        "running_var": 0.6 + torch.rand(channels),
    }


def with_prefix(prefix: str, tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    return {f"{prefix}.{name}": tensor for name, tensor in tensors.items()}


def normalize(weights: dict, prefix: str, x: torch.Tensor) -> torch.Tensor:
    names = ("weight", "bias", "running_mean", "running_var")
    weight, bias, mean, variance = (weights[f"{prefix}.{name}"][:, None, None] for name in names)
    return (x - mean) / torch.sqrt(variance + 1e-5) * weight + bias


def assert_same_map(backbone, expected: torch.Tensor, images: torch.Tensor):
    with torch.no_grad():
        actual = backbone(images).feature_maps[-1]
    assert expected.std() > 0.1, "a map of zeros would show nothing"
    torch.testing.assert_close(actual, expected, atol=1e-5, rtol=1e-5)


# torchvision


def vgg_state_dict(plan=VGG_11, batch_norm: bool = False) -> dict[str, torch.Tensor]:
    weights, channels, position = {}, 3, 0
    for step in plan:
        if step == "pool":
            position += 1
            continue
        weights[f"features.{position}.weight"] = random_convolution(step, channels, 3)
        weights[f"features.{position}.bias"] = 0.1 * torch.randn(step)
        if batch_norm:
            position += 1
            weights |= with_prefix(f"features.{position}", random_norm(step))
            weights[f"features.{position}.num_batches_tracked"] = torch.tensor(7)
        position += 2
        channels = step
    for layer in (0, 3, 6):
        weights |= {f"classifier.{layer}.weight": torch.randn(2, 2), f"classifier.{layer}.bias": torch.randn(2)}
    return weights


def vgg_map(weights: dict, x: torch.Tensor, plan=VGG_11) -> torch.Tensor:
    """The map before the last pooling."""
    position = 0
    for step in plan[:-1]:
        if step == "pool":
            x, position = functional.max_pool2d(x, 2), position + 1
            continue
        key = f"features.{position}"
        x = functional.conv2d(x, weights[f"{key}.weight"], weights[f"{key}.bias"], padding=1)
        if f"features.{position + 1}.running_mean" in weights:
            position += 1
            x = normalize(weights, f"features.{position}", x)
        x, position = x.clamp(min=0), position + 2
    return x


def torchvision_name(stage: int, block: int, part: int) -> tuple[str, str]:
    """Names of a convolution and its normalization; stage 0 is the stem, part 0 the shortcut."""
    prefix = f"layer{stage}.{block}." if stage else ""
    names = (f"conv{part}", f"bn{part}") if part else ("downsample.0", "downsample.1")
    return prefix + names[0], prefix + names[1]


def detectron2_name(stage: int, block: int, part: int, home: str = "backbone") -> tuple[str, str]:
    module = f"conv{part}" if part else "shortcut"
    name = f"{home}.res{stage + 1}.{block}.{module}" if stage else "backbone.stem.conv1"
    return name, f"{name}.norm"


def resnet_state_dict(name_of, depths, groups=1, width=64, sizes=(256, 512, 1024, 2048), stem=64) -> dict:
    weights = {}

    def add(place: tuple[int, int, int], *shape: int):
        convolution, norm = name_of(*place)
        weights[f"{convolution}.weight"] = random_convolution(*shape)
        weights.update(with_prefix(norm, random_norm(shape[0])))

    add((0, 0, 1), stem, 3, 7)
    in_channels = stem
    for stage, (depth, out_channels) in enumerate(zip(depths, sizes, strict=True), start=1):
        inner = groups * width * 2 ** (stage - 1)
        for block in range(depth):
            if block == 0:
                add((stage, block, 0), out_channels, in_channels, 1)
            add((stage, block, 1), inner, in_channels, 1)
            add((stage, block, 2), inner, inner // groups, 3)
            add((stage, block, 3), out_channels, inner, 1)
            in_channels = out_channels
    return weights


def resnet_map(name_of, weights: dict, x: torch.Tensor, depths, groups: int = 1, stride_in_1x1: bool = False):
    def convolve(x, *place: int, **options):
        convolution, norm = name_of(*place)
        return normalize(weights, norm, functional.conv2d(x, weights[f"{convolution}.weight"], **options))

    x = functional.max_pool2d(convolve(x, 0, 0, 1, stride=2, padding=3).clamp(min=0), 3, stride=2, padding=1)
    for stage, depth in enumerate(depths, start=1):
        for block in range(depth):
            stride = 2 if block == 0 and stage > 1 else 1
            first, second = (stride, 1) if stride_in_1x1 else (1, stride)
            inner = convolve(x, stage, block, 1, stride=first).clamp(min=0)
            inner = convolve(inner, stage, block, 2, stride=second, padding=1, groups=groups).clamp(min=0)
            shortcut = convolve(x, stage, block, 0, stride=stride) if block == 0 else x
            x = (convolve(inner, stage, block, 3) + shortcut).clamp(min=0)
    return x


def torchvision_resnet_state_dict(depths, groups: int = 1, width: int = 64) -> dict[str, torch.Tensor]:
    weights = resnet_state_dict(torchvision_name, depths, groups, width)
    norms = [name.removesuffix("running_var") for name in weights if name.endswith("running_var")]
    weights |= {f"{name}num_batches_tracked": torch.tensor(7) for name in norms}
    return {**weights, "fc.weight": torch.randn(10, 2048), "fc.bias": torch.randn(10)}


def torchvision_resnet_map(weights: dict, x: torch.Tensor, depths, groups: int = 1) -> torch.Tensor:
    return resnet_map(torchvision_name, weights, x, depths, groups)


HEADS = [
    "proposal_generator.anchor_generator.cell_anchors.0",
    "proposal_generator.rpn_head.anchor_deltas.bias",
    "proposal_generator.rpn_head.conv.weight",
    "roi_heads.attribute_predictor.attr_score.bias",
    "roi_heads.attribute_predictor.obj_embed.weight",
    "roi_heads.box_head.fc1.weight",
    "roi_heads.box_predictor.cls_score.weight",
]


def home_of(stage: int, block: int, part: int) -> tuple[str, str]:
    """Names in a detector whose heads have the last stage."""
    return detectron2_name(stage, block, part, "roi_heads" if stage == 4 else "backbone")


def detectron2_state_dict(*sizes, last_stage_in_heads: bool = False, **named) -> dict[str, torch.Tensor]:
    """A detector: backbone, proposal generator, heads."""
    weights = resnet_state_dict(home_of if last_stage_in_heads else detectron2_name, *sizes, **named)
    return weights | {name: torch.randn(2) for name in HEADS}


def detectron2_map(weights: dict, x: torch.Tensor, depths, groups: int = 1, stride_in_1x1: bool = False):
    name_of = home_of if "roi_heads.res5.0.conv1.weight" in weights else detectron2_name
    return resnet_map(name_of, weights, x, depths, groups, stride_in_1x1)
