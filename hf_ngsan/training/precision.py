"""The precision of training, and evaluation in that of the weights, whatever it is."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

BF16_FEATURES = ("avx512_bf16", "amx_bf16", "sve_bf16", "bf16")
"""Instruction sets of processors that multiply in bfloat16, by their names in `torch.cpu.get_capabilities`."""


def precision_of(setting: str | None, device: torch.device) -> str:
    """Returns what Accelerate calls the precision that `training.mixed_precision` asks for: no, fp16 or bf16.

    `auto` is bf16 on a device that computes in it. Elsewhere it is emulated, which takes longer than float32.
    """
    if setting == "auto":
        return "bf16" if computes_in_bf16(device) else "no"
    return setting or "no"


def computes_in_bf16(device: torch.device) -> bool:
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    if device.type == "cpu" and hasattr(torch.cpu, "get_capabilities"):  # PyTorch 2.11 or later
        found = torch.cpu.get_capabilities()
        return any(found.get(name, False) for name in BF16_FEATURES)
    return False


@contextmanager
def full_precision(model: torch.nn.Module) -> Iterator[None]:
    """Inside the `with` block a model that Accelerate prepared for mixed precision computes as it does when loaded.

    Args:
        model: not wrapped for several processes. Accelerate puts a `forward` that casts into the object itself.
    """
    mixed = model.__dict__.pop("forward", None)
    try:
        yield
    finally:
        if mixed is not None:
            model.__dict__["forward"] = mixed
