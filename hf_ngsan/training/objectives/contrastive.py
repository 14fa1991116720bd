"""Contrastive losses with in-batch negatives; exact for any split of the batch into parts and processes."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from ...models.configuration_contrastive import ContrastiveSettings
from ...models.contrastive_losses import losses_of as losses_of_pairs
from ...models.contrastive_losses import penalties_of
from ..batches import MicroBatch
from ..task import Objective, Update

GOLDEN_RATIO = 0x9E3779B97F4A7C15 - 2**64
"""The increment of SplitMix64, 2 ** 64 / golden ratio, as a signed number; below, its two mixing steps."""
MIXERS = ((30, 0xBF58476D1CE4E5B9 - 2**64), (27, 0x94D049BB133111EB - 2**64))


class Contrastive(Objective):
    """Pulls images and their texts together, and apart from other texts and images of the whole global batch.

    The loss is the mean of [`~hf_ngsan.models.contrastive_losses.pair_losses`] over all pairs of a text and its image,
    with inner products as similarities. Texts of the same image are never negatives of each other's pairs. The second
    term is `diversity_weight` times the mean of [`~hf_ngsan.models.contrastive_losses.diversity_penalty`] over the
    images and over the texts of the batch; for this, the model must return `vision_model_output` and
    `text_model_output` with last attentions `(rows, heads, positions)`.

    The graphs of the whole global batch may not fit into memory. Therefore the embeddings are first computed without
    graphs, then the gradient of the loss with respect to them, and then each micro-batch is run again with its part of
    that gradient (Gao et al. 2021, *Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup*). A batch
    that is not split is run only once. Dropout masks depend on the rows, so both runs have the same (see
    [`RowDropout`]), but batch normalization uses the statistics of micro-batches.

    The model returns `image_embeds (B, D)` and `text_embeds (B * C, D)` with C texts per image; texts of an image are
    next to each other. A batch has the model's inputs and `row_index (B,)`, the number of each training row.

    A function `losses_of` can replace `pair_losses`: it gets similarities `(B, M)` and the assignment of texts to
    images, and may have further `parameters`.
    """

    needs_row_index = True
    can_compile = False  # `RowDropout` replaces functions that a compiled model has inlined

    def __init__(
        self,
        settings: ContrastiveSettings | None = None,
        losses_of: Callable[[torch.Tensor, torch.Tensor], torch.Tensor] | None = None,
        parameters: Sequence[torch.nn.Parameter] = (),
    ):
        self.settings = settings or ContrastiveSettings()
        self.losses_of = losses_of or partial(losses_of_pairs, self.settings)
        self.parameters = parameters

    def prepare(self, model: torch.nn.Module, batches: Sequence[MicroBatch], update: Update) -> list[dict]:
        """Embeds the global batch and attaches to each micro-batch the gradient of the loss at its embeddings."""
        if getattr(model, "is_gradient_checkpointing", False):  # layers would be recomputed with other masks
            raise ValueError("Contrastive training saves memory itself and does not support gradient checkpointing.")
        keeps_graph = update.keeps_graph(batches)
        outputs, embedded = None, []
        for batch in batches:
            with torch.set_grad_enabled(keeps_graph):
                outputs = model_outputs(model, batch, update)
            embedded.append(embeddings(outputs, batch))
        images, texts, image_rows, text_rows = (torch.cat(parts) for parts in zip(*embedded, strict=True))
        (all_images, first_image), (all_texts, first_text) = update.gather(images), update.gather(texts)
        (all_image_rows, _), (all_text_rows, _) = update.gather(image_rows), update.gather(text_rows)
        with torch.enable_grad(), torch.autocast(images.device.type, enabled=False):
            all_images, all_texts = all_images.requires_grad_(), all_texts.requires_grad_()
            similarities, is_own = all_images @ all_texts.mT, all_image_rows[:, None] == all_text_rows
            losses = self.losses_of(similarities, is_own)
            if self.settings.loss_reduction == "sum":
                losses = losses * len(losses)
            trained = [parameter for parameter in self.parameters if parameter.requires_grad]
            leaves = (all_images, all_texts, *trained)
            image_gradients, text_gradients, *others = torch.autograd.grad(losses.sum(), leaves, materialize_grads=True)
        nearest = (all_images.detach() @ all_texts.detach().mT).argmax(0)
        recalled = (all_image_rows[nearest] == all_text_rows).float()

        prepared = []
        for batch, (own_images, own_texts, _, _) in zip(batches, embedded, strict=True):
            image_slice = slice(first_image, first_image := first_image + len(own_images))
            text_slice = slice(first_text, first_text := first_text + len(own_texts))
            inputs = {"batch": batch, "update": update, "outputs": outputs if keeps_graph else None}
            inputs |= {"image_gradients": image_gradients[image_slice], "text_gradients": text_gradients[text_slice]}
            inputs["others"] = [
                (weight, gradient * len(own_texts) / len(all_texts))
                for weight, gradient in zip(trained, others, strict=True)
            ]
            inputs |= {"losses": losses.detach()[text_slice], "recalled": recalled[text_slice]}
            inputs["by_chance"] = len(own_texts) / len(all_images)
            prepared.append(inputs)
        return prepared

    def weight(self, inputs: dict) -> torch.Tensor:
        return torch.full((), float(len(inputs["losses"])), device=inputs["losses"].device)

    def loss(self, model: torch.nn.Module, inputs: dict) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Returns a scalar with the gradient of the loss; its value is meaningless."""
        outputs, losses = inputs["outputs"], inputs["losses"]
        if outputs is None:
            outputs = model_outputs(model, inputs["batch"], inputs["update"])
        others = sum(((parameter * gradient).sum() for parameter, gradient in inputs["others"]), torch.zeros(()))
        if not len(losses):  # a filler
            return (outputs.image_embeds.sum() + outputs.text_embeds.sum() + others) * 0.0, {}
        images = (outputs.image_embeds.float() * inputs["image_gradients"]).sum()
        texts = (outputs.text_embeds.float() * inputs["text_gradients"]).sum()
        sides = (getattr(outputs, f"{side}_model_output", None) for side in ("vision", "text"))
        side_penalties = penalties_of(self.settings, *sides)
        diversity = {f"{side}_diversity": penalties.mean() * len(losses) for side, penalties in side_penalties.items()}
        penalty = self.settings.diversity_weight * sum(diversity.values(), torch.zeros(()))
        statistics = {
            "loss": losses.sum() + penalty.detach(),
            "pairs": torch.tensor(float(len(losses))),
            **{name: value.detach() for name, value in diversity.items()},
            "recalled": inputs["recalled"].sum(),
            "by_chance": torch.tensor(inputs["by_chance"]),
        }
        return images + texts + penalty + others, statistics

    def summary(self, sums: dict[str, float]) -> dict[str, float]:
        """Returns the mean loss, penalties, the recall of the right image for each text, and its chance level."""
        pairs = sums["pairs"]
        return {
            "loss": sums["loss"] / pairs,
            "batch_recall": sums["recalled"] / pairs,
            "chance_recall": sums["by_chance"] / pairs,
            **{name: value / pairs for name, value in sums.items() if name.endswith("_diversity")},
        }

    def describe(self, summary: dict[str, float]) -> str:
        recall, chance = summary["batch_recall"], summary["chance_recall"]
        return f"loss {summary['loss']:.4f}, recall {recall:.1%} in the batch ({chance:.1%} by chance)"


def model_outputs(model: torch.nn.Module, batch: MicroBatch, update: Update) -> Any:
    """Returns the outputs of a model for a micro-batch, with the same random numbers each time."""
    inputs = dict(batch.inputs)
    rows = inputs.pop("row_index")
    forked = [] if rows.device.type == "cpu" else [rows.device]
    with torch.random.fork_rng(forked, device_type=rows.device.type):
        torch.manual_seed(hash((update.seed, update.step, int(rows[0]))))
        with RowDropout(rows, update.seed, update.step):
            return model(**inputs)


def embeddings(outputs: Any, batch: MicroBatch) -> tuple[torch.Tensor, ...]:
    """Returns embeddings of images and texts, without graphs, and their rows; empty for a filler."""
    images, texts = outputs.image_embeds.detach().float(), outputs.text_embeds.detach().float()
    rows = batch.inputs["row_index"]
    text_rows = rows.repeat_interleave(len(texts) // len(images))
    number = len(images) if batch.num_rows else 0
    kept = len(texts) if batch.num_rows else 0
    return images[:number], texts[:kept], rows[:number], text_rows[:kept]


class RowDropout(TorchFunctionMode):
    """Makes every dropout mask inside the `with` block a function of the update, the row and the indices in the row.

    This applies to `torch.nn.functional.dropout` and the dropout of `scaled_dot_product_attention`, on tensors with a
    first dimension of the rows or a multiple of them (such as captions per image). Other tensors, and functions with
    internal dropout (`nn.MultiheadAttention`, `nn.LSTM`), get masks of PyTorch's generator.
    """

    def __init__(self, keys: torch.LongTensor, seed: int, step: int):
        super().__init__()
        self.keys = hashed(hashed(keys.long() + hashed(torch.tensor(seed)).to(keys)) + step)
        self.calls = 0

    def __torch_function__(
        self, function: Callable, types: Sequence[type], args: tuple = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        arguments = dict(kwargs or {})
        if function is functional.dropout:
            return self.dropout(*args, **arguments)
        rate = args[4] if len(args) > 4 else arguments.get("dropout_p", 0.0)
        if function is functional.scaled_dot_product_attention and rate > 0:
            return self.attention(*args, **arguments)
        return function(*args, **arguments)

    def dropout(
        self, input: torch.Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
    ) -> torch.Tensor:
        if not training or p == 0 or not input.ndim or not len(self.keys) or len(input) % len(self.keys):
            return functional.dropout(input, p, training, inplace)
        scale = (self.uniform(input) >= p).to(input.dtype) / max(1 - p, torch.finfo(input.dtype).tiny)
        return input.mul_(scale) if inplace else input * scale

    def attention(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attn_mask: torch.Tensor | None = None,
        dropout_p: float = 0.0,
        is_causal: bool = False,
        scale: float | None = None,
        enable_gqa: bool = False,
    ) -> torch.Tensor:
        if enable_gqa:  # several query heads share a head of keys and values
            key, value = (states.repeat_interleave(query.shape[-3] // states.shape[-3], -3) for states in (key, value))
        scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
        if is_causal:
            allowed = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
            scores = scores.masked_fill(~allowed, -torch.inf)
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            scores = scores.masked_fill(~attn_mask, -torch.inf)
        elif attn_mask is not None:
            scores = scores + attn_mask
        weights = scores.softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32))
        return self.dropout(weights, dropout_p).to(value.dtype) @ value

    def uniform(self, tensor: torch.Tensor) -> torch.Tensor:
        """Returns numbers in [0, 1) in the shape of a tensor, float32."""
        self.calls += 1
        keys = self.keys.to(tensor.device)
        parts = torch.arange(len(tensor) // len(keys), device=tensor.device)
        state = hashed((keys[:, None] + hashed(parts + self.calls * 2**32)).flatten())
        for size in tensor.shape[1:]:
            state = hashed(state[..., None] + hashed(torch.arange(size, device=tensor.device)))
        return ((state >> 40) & 0xFFFFFF).float() / 2**24


def hashed(numbers: torch.Tensor) -> torch.Tensor:
    """Returns 64 bits for each 64-bit integer: SplitMix64 (Steele et al. 2014, fig. 15)."""
    numbers = numbers + GOLDEN_RATIO
    for shift, factor in MIXERS:
        numbers = (numbers ^ shifted_right(numbers, shift)) * factor
    return numbers ^ shifted_right(numbers, 31)


def shifted_right(numbers: torch.Tensor, bits: int) -> torch.Tensor:
    """Shifts the numbers as unsigned integers; the operator `>>` would keep the sign."""
    return (numbers >> bits) & ((1 << (64 - bits)) - 1)
