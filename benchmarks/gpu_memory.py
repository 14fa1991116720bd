"""Memory of a training step on a GPU for each model at paper size, computed without one.

Weights, gradients and the two averages of Adam take 16 bytes per trained weight, frozen weights 4. The activations that
the forward pass keeps are counted on tensors of the device "meta", which have shapes but no memory, with the images,
captions and words of an update of the training config. The CUDA context, workspaces and fragmentation need additional
memory. In bf16 (autocast), activations need between half and all of it, and weights the same.

    python benchmarks/gpu_memory.py
"""

from collections.abc import Callable
from typing import Any

import torch
from transformers.utils import logging

import hf_ngsan

MIB = 2**20


def captioning(name: str, images: int, regions: int, words: int, **fields: Any) -> tuple[Any, dict]:
    """Returns a captioner on the device "meta", and a batch of images with five captions each."""
    config = getattr(hf_ngsan, f"{name}Config")(vision_config=None, **fields)
    model = getattr(hf_ngsan, f"{name}ForConditionalGeneration")(config)
    batch = {
        "visual_features": torch.rand(images, regions, config.visual_feature_size),
        "visual_boxes": torch.rand(images, regions, 4),
        "labels": torch.ones(5 * images, words, dtype=torch.long),
    }
    return model, batch


def retrieval(images: int, regions: int, words: int) -> tuple[Any, dict]:
    model = hf_ngsan.MHSANModel(hf_ngsan.MHSANConfig(vision_config=None, text_config={"vocab_size": 20_000}))
    ids = torch.ones(images, words, dtype=torch.long)
    features = torch.rand(images, regions, model.config.visual_feature_size)
    return model, {"visual_features": features, "input_ids": ids, "return_loss": True}


UPDATES: dict[str, Callable[[], tuple[Any, dict]]] = {
    "SAN, 50 x 5 captions, 36 regions": lambda: captioning(
        "NGSAN", 50, 36, 20, vocab_size=9491, query_norm=None, geometric_bias=[]
    ),
    "NG-SAN, 50 x 5 captions, 36 regions": lambda: captioning(
        "NGSAN", 50, 36, 20, vocab_size=9491, geometry_hidden_size=80
    ),
    "NG-SAN, L = 6, 100 regions": lambda: captioning(
        "NGSAN", 50, 100, 20, vocab_size=9491, geometry_hidden_size=80, num_hidden_layers=6
    ),
    "RSTNet without language model, 50 x 5 captions, 49 cells": lambda: captioning(
        "RSTNet", 50, 49, 20, vocab_size=10_201, adaptive_attention=False
    ),
    "spatial captioner, 50 x 5 captions, 196 cells": lambda: captioning(
        "SpatialCaptioner", 50, 196, 15, vocab_size=9491, visual_feature_size=512
    ),
    "MHSAN on features, 160 pairs, 64 cells": lambda: retrieval(160, 64, 40),
}


def saved_bytes(model: torch.nn.Module, batch: dict) -> int:
    """Returns the bytes that a forward pass keeps for the backward pass, without weights and inputs."""
    known = {tensor.untyped_storage()._cdata for tensor in [*model.parameters(), *model.buffers()]}
    known |= {tensor.untyped_storage()._cdata for tensor in batch.values() if torch.is_tensor(tensor)}
    kept: dict[int, torch.UntypedStorage] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in known:
            kept[storage._cdata] = storage  # kept alive, so that its number is not reused
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        loss = model(**batch).loss
    assert loss.requires_grad
    return sum(storage.nbytes() for storage in kept.values())


def main() -> None:
    logging.set_verbosity_error()
    print("| an update, fp32 | weights, millions | weights, gradients, Adam, MiB | kept by forward, MiB | together |")
    print("| --- | --- | --- | --- | --- |")
    for name, make in UPDATES.items():
        with torch.device("meta"):
            model, batch = make()
            trained = sum(weight.numel() for weight in model.parameters() if weight.requires_grad)
            frozen = sum(weight.numel() for weight in model.parameters() if not weight.requires_grad)
            activations = saved_bytes(model.train(), batch) / MIB
        weights = (16 * trained + 4 * frozen) / MIB
        print(
            f"| {name} | {(trained + frozen) / 1e6:.1f} | {weights:,.0f} | {activations:,.0f} | "
            f"{weights + activations:,.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
