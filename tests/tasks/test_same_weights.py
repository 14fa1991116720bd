"""Training gives the weights that it gave at an earlier commit, bit for bit."""

import hashlib

import pytest
import torch
from safetensors.torch import load_file

from hf_ngsan.tasks import CaptioningConfig, train

from .tiny import tiny_sections

RECORDED_WITH = "2.13.0"
CHECKSUMS = {
    "AMD AVX512": {
        "teacher forcing": "fe95644674b75024",
        "both stages": "0aa6022d795642a0",
        "from pixels": "a440c49c736757c0",
    },
}
PIXELS = {
    "model_type": "spatial_captioner",
    "hidden_size": 16,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "encoder_layers": 1,
    "decoder_layers": 1,
    "vision_config": {
        "backbone_config": {"model_type": "ngsan_vgg", "hidden_sizes": [4, 8], "depths": [1, 1]},
        "frozen": False,
    },
}
RUNS = {
    "teacher forcing": {},
    "both stages": {
        "training": {"stage": "auto", "gradient_accumulation_steps": 2, "max_grad_norm": 1.0, "ema_decay": 0.9},
        "self_critical": {"epochs": 1, "learning_rate": 0.001, "samples_per_image": 3},
    },
    "from pixels": {
        "model": PIXELS,
        "data": {"spec": "scenes:size=30,seed=3,images=true,image_size=32", "image_size": 32},
        "training": {"epochs": 1},
    },
}


def config_of(folder, model=None, **changes) -> CaptioningConfig:
    sections = tiny_sections(folder, **changes)
    return CaptioningConfig.from_dict({**sections, "model": model or sections["model"]})


def checksum(folder) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(load_file(folder / "last" / "model.safetensors").items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\0".encode())
        digest.update(tensor.contiguous().view(-1).view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()[:16]


@pytest.mark.parametrize(
    "run", ["teacher forcing", *(pytest.param(run, marks=pytest.mark.slow) for run in ("both stages", "from pixels"))]
)
def test_weights_are_those_recorded(tmp_path, run):
    machine = processor()
    if torch.__version__.split("+")[0] != RECORDED_WITH or machine not in CHECKSUMS:
        pytest.skip(f"checksums are of torch {RECORDED_WITH} on {', '.join(CHECKSUMS)}; this is {machine}")
    train(config_of(tmp_path / "run", **RUNS[run]))
    assert checksum(tmp_path / "run") == CHECKSUMS[machine][run]


def processor() -> str:
    """What decides about the rounding of PyTorch's kernels: the processor's maker and its vector instructions."""
    makers = {"GenuineIntel": "Intel", "AuthenticAMD": "AMD"}
    try:
        with open("/proc/cpuinfo") as file:
            maker = next((name for line in file for key, name in makers.items() if key in line), "unknown")
    except OSError:
        maker = "unknown"
    return f"{maker} {torch.backends.cpu.get_cpu_capability()}"
