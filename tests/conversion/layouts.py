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
        found = backbone(images).feature_maps[-1]
    assert expected.std() > 0.1, "a map of zeros would show nothing"
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


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
        x = functional.conv2d(
            x, weights[f"features.{position}.weight"], weights[f"features.{position}.bias"], padding=1
        )
        if f"features.{position + 1}.running_mean" in weights:
            position += 1
            x = normalize(weights, f"features.{position}", x)
        x, position = x.clamp(min=0), position + 2
    return x


def resnet_shapes(depths, groups: int, width: int, sizes, stem: int):
    """For every block: stage, index, and the shapes of its convolutions 1, 2, 3 and, in a first block, its shortcut."""
    in_channels = stem
    for stage, (depth, out_channels) in enumerate(zip(depths, sizes, strict=True), start=1):
        inner = groups * width * 2 ** (stage - 1)
        for block in range(depth):
            shapes = [(inner, in_channels, 1), (inner, inner // groups, 3), (out_channels, inner, 1)]
            yield stage, block, shapes, (out_channels, in_channels, 1) if block == 0 else None
            in_channels = out_channels


def torchvision_resnet_state_dict(
    depths, groups: int = 1, width: int = 64, sizes=(256, 512, 1024, 2048), stem: int = 64
) -> dict[str, torch.Tensor]:
    weights = {"conv1.weight": random_convolution(stem, 3, 7), **with_prefix("bn1", random_norm(stem))}
    for stage, block, shapes, shortcut in resnet_shapes(depths, groups, width, sizes, stem):
        prefix = f"layer{stage}.{block}"
        for number, shape in enumerate(shapes, start=1):
            weights[f"{prefix}.conv{number}.weight"] = random_convolution(*shape)
            weights |= with_prefix(f"{prefix}.bn{number}", random_norm(shape[0]))
        if shortcut:
            weights[f"{prefix}.downsample.0.weight"] = random_convolution(*shortcut)
            weights |= with_prefix(f"{prefix}.downsample.1", random_norm(shortcut[0]))
    norms = [name.removesuffix("running_var") for name in weights if name.endswith("running_var")]
    weights |= {f"{name}num_batches_tracked": torch.tensor(7) for name in norms}
    return {**weights, "fc.weight": torch.randn(10, sizes[-1]), "fc.bias": torch.randn(10)}


def torchvision_resnet_map(weights: dict, x: torch.Tensor, depths, groups: int = 1) -> torch.Tensor:
    x = functional.conv2d(x, weights["conv1.weight"], stride=2, padding=3)
    x = functional.max_pool2d(normalize(weights, "bn1", x).clamp(min=0), 3, stride=2, padding=1)
    for stage, depth in enumerate(depths, start=1):
        for block in range(depth):
            prefix, stride = f"layer{stage}.{block}", 2 if stage > 1 and block == 0 else 1
            inner = functional.conv2d(x, weights[f"{prefix}.conv1.weight"])
            inner = normalize(weights, f"{prefix}.bn1", inner).clamp(min=0)
            options = {"stride": stride, "padding": 1, "groups": groups}
            inner = functional.conv2d(inner, weights[f"{prefix}.conv2.weight"], **options)
            inner = normalize(weights, f"{prefix}.bn2", inner).clamp(min=0)
            inner = normalize(weights, f"{prefix}.bn3", functional.conv2d(inner, weights[f"{prefix}.conv3.weight"]))
            if block == 0:
                x = functional.conv2d(x, weights[f"{prefix}.downsample.0.weight"], stride=stride)
                x = normalize(weights, f"{prefix}.downsample.1", x)
            x = (inner + x).clamp(min=0)
    return x


# detectron2


def detectron2_state_dict(
    depths,
    groups: int = 1,
    width: int = 64,
    sizes=(256, 512, 1024, 2048),
    stem: int = 64,
    last_stage_in_heads: bool = False,
) -> dict[str, torch.Tensor]:
    """A detector: backbone, proposal generator, heads."""
    weights = {"backbone.stem.conv1.weight": random_convolution(stem, 3, 7)}
    weights |= with_prefix("backbone.stem.conv1.norm", random_norm(stem))
    for stage, block, shapes, shortcut in resnet_shapes(depths, groups, width, sizes, stem):
        name = f"res{stage + 1}"
        prefix = f"{'roi_heads' if name == 'res5' and last_stage_in_heads else 'backbone'}.{name}.{block}"
        if shortcut:
            weights[f"{prefix}.shortcut.weight"] = random_convolution(*shortcut)
            weights |= with_prefix(f"{prefix}.shortcut.norm", random_norm(shortcut[0]))
        for number, shape in enumerate(shapes, start=1):
            weights[f"{prefix}.conv{number}.weight"] = random_convolution(*shape)
            weights |= with_prefix(f"{prefix}.conv{number}.norm", random_norm(shape[0]))
    return weights | {name: torch.randn(2) for name in HEADS}


HEADS = [
    "proposal_generator.anchor_generator.cell_anchors.0",
    "proposal_generator.rpn_head.anchor_deltas.bias",
    "proposal_generator.rpn_head.conv.weight",
    "roi_heads.attribute_predictor.attr_score.bias",
    "roi_heads.attribute_predictor.obj_embed.weight",
    "roi_heads.box_head.fc1.weight",
    "roi_heads.box_predictor.cls_score.weight",
]


def detectron2_map(
    weights: dict, x: torch.Tensor, depths, groups: int = 1, stride_in_1x1: bool = False
) -> torch.Tensor:
    def convolve(prefix, x, **options):
        return normalize(weights, f"{prefix}.norm", functional.conv2d(x, weights[f"{prefix}.weight"], **options))

    x = convolve("backbone.stem.conv1", x, stride=2, padding=3).clamp(min=0)
    x = functional.max_pool2d(x, 3, stride=2, padding=1)
    for stage, depth in zip(("res2", "res3", "res4", "res5"), depths, strict=True):
        part = "roi_heads" if f"roi_heads.{stage}.0.conv1.weight" in weights else "backbone"
        for block in range(depth):
            prefix = f"{part}.{stage}.{block}"
            stride = 2 if block == 0 and stage != "res2" else 1
            first, second = (stride, 1) if stride_in_1x1 else (1, stride)
            inner = convolve(f"{prefix}.conv1", x, stride=first).clamp(min=0)
            inner = convolve(f"{prefix}.conv2", inner, stride=second, padding=1, groups=groups).clamp(min=0)
            inner = convolve(f"{prefix}.conv3", inner)
            shortcut = convolve(f"{prefix}.shortcut", x, stride=stride) if block == 0 else x
            x = (inner + shortcut).clamp(min=0)
    return x
