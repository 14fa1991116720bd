"""Contrastive losses over in-batch negatives, exact for any cutting of the batch into parts and processes."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ..batches import MicroBatch
from ..settings import setting
from .objective import Objective, Update
from .row_dropout import RowDropout


@dataclass(frozen=True)
class ContrastiveSettings:
    """How embeddings of images and texts are compared."""

    loss: str = setting(
        "hardest",
        "hardest = triplet loss with the hardest negative, all = with every negative, info_nce = cross-entropy",
        choices=("hardest", "all", "info_nce"),
    )
    margin: float = setting(0.2, "triplet losses: by how much a pair shall be more similar than a negative", minimum=0)
    temperature: float = setting(0.07, "info_nce: similarities are divided by it", minimum=1e-4)


class Contrastive(Objective):
    """Draws images and their texts together, and apart from the other texts and images of the whole global batch.

    With s the similarities (inner products) of B images and M texts, and for each pair of an image i and a text t of
    its own the negatives t' of other images and i' != i, the loss is the mean over the M pairs of

    - `"hardest"`: max_t' [m - s_it + s_it']_+ + max_i' [m - s_it + s_i't]_+ (eq. 6 of Faghri et al. 2018, VSE++);
    - `"all"`: the same with sums over t' and i' in place of the maxima (eq. 5, ibid.);
    - `"info_nce"`: half of -log(exp(s_it / T) / (exp(s_it / T) + sum_t' exp(s_it' / T))) and half of the same over i'
      (van den Oord et al. 2018; Radford et al. 2021).

    Texts of the same image are never negatives of each other's pairs. The loss needs the embeddings of the whole global
    batch at once, which need not fit into memory with their graphs: they are computed without graphs first, the
    gradient of the loss is taken with respect to them, and each micro-batch is then run again and given its part of
    that gradient (Gao et al. 2021, *Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup*). Dropout
    masks repeat in the second run and belong to the rows, see [`RowDropout`], so that the update is the same for any
    number of accumulation steps and processes, to the rounding of sums. Batch normalization with statistics of the
    batch is the exception: it sees micro-batches.

    The model returns `image_embeds (B, D)` and `text_embeds (B * C, D)`, C texts an image, those of one image next to
    each other. A batch holds the model's inputs and `row_index (B,)`, the number of each training row.

    Args:
        settings: which loss, and its margin or temperature.
    """

    needs_row_index = True

    def __init__(self, settings: ContrastiveSettings | None = None):
        self.settings = settings or ContrastiveSettings()

    def prepare(self, model: torch.nn.Module, batches: Sequence[MicroBatch], update: Update) -> list[dict]:
        """Embeds the global batch and attaches to each micro-batch the gradient of the loss at its embeddings.

        Raises:
            ValueError: the model recomputes activations (gradient checkpointing), which would draw other masks.
        """
        if getattr(model, "is_gradient_checkpointing", False):
            raise ValueError(
                "A contrastive loss runs each micro-batch twice and does not go with gradient checkpointing; save "
                "memory with training.gradient_accumulation_steps instead."
            )
        embedded = [self.embed(model, batch, update) for batch in batches]
        images, texts, image_rows, text_rows = (torch.cat(parts) for parts in zip(*embedded, strict=True))
        (all_images, first_image), (all_texts, first_text) = update.gather(images), update.gather(texts)
        (all_image_rows, _), (all_text_rows, _) = update.gather(image_rows), update.gather(text_rows)
        with torch.enable_grad():
            all_images, all_texts = all_images.requires_grad_(), all_texts.requires_grad_()
            losses = pair_losses(all_images, all_texts, all_image_rows, all_text_rows, self.settings)
            image_gradients, text_gradients = torch.autograd.grad(losses.sum(), (all_images, all_texts))
        recalled = recall(all_images.detach(), all_texts.detach(), all_image_rows, all_text_rows)

        prepared = []
        for batch, (own_images, own_texts, _, _) in zip(batches, embedded, strict=True):
            of_images = slice(first_image, first_image := first_image + len(own_images))
            of_texts = slice(first_text, first_text := first_text + len(own_texts))
            prepared.append(
                {
                    "batch": batch,
                    "update": update,
                    "image_gradients": image_gradients[of_images],
                    "text_gradients": text_gradients[of_texts],
                    "losses": losses.detach()[of_texts],
                    "recalled": recalled[of_texts],
                }
            )
        return prepared

    @torch.no_grad()
    def embed(self, model: torch.nn.Module, batch: MicroBatch, update: Update) -> tuple[torch.Tensor, ...]:
        """Returns embeddings of images and texts and the rows of both; none of a filler."""
        outputs = run(model, batch, update)
        images, texts = outputs.image_embeds.float(), outputs.text_embeds.float()
        rows = batch.inputs["row_index"]
        text_rows = rows.repeat_interleave(len(texts) // len(images))
        number = len(images) if batch.num_rows else 0
        kept = len(texts) if batch.num_rows else 0
        return images[:number], texts[:kept], rows[:number], text_rows[:kept]

    def weight(self, inputs: dict) -> torch.Tensor:
        return torch.tensor(float(len(inputs["losses"])), device=inputs["losses"].device)

    def loss(self, model: torch.nn.Module, inputs: dict) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
        """Returns a scalar whose gradient is that of the loss; its value means nothing."""
        outputs, losses = run(model, inputs["batch"], inputs["update"]), inputs["losses"]
        if not len(losses):  # a filler
            return (outputs.image_embeds.sum() + outputs.text_embeds.sum()) * 0.0, {}
        images = (outputs.image_embeds.float() * inputs["image_gradients"]).sum()
        texts = (outputs.text_embeds.float() * inputs["text_gradients"]).sum()
        statistics = {"loss": losses.sum(), "pairs": torch.tensor(float(len(losses)))}
        return images + texts, {**statistics, "recalled": inputs["recalled"].sum()}

    def summary(self, sums: dict[str, float]) -> dict[str, float]:
        """Returns the mean loss and `batch_recall`, the share of texts nearest to their own image in the batch."""
        return {"loss": sums["loss"] / sums["pairs"], "batch_recall": sums["recalled"] / sums["pairs"]}

    def describe(self, summary: dict[str, float]) -> str:
        return f"loss {summary['loss']:.4f}, recall {summary['batch_recall']:.1%} in the batch"


def run(model: torch.nn.Module, batch: MicroBatch, update: Update) -> Any:
    """Returns the outputs of a model for a micro-batch, with the same random numbers each time."""
    inputs = dict(batch.inputs)
    rows = inputs.pop("row_index")
    with torch.random.fork_rng(devices=[rows.device] if rows.is_cuda else []):
        torch.manual_seed(hash((update.seed, update.step, int(rows[0]))))
        with RowDropout(rows, update.seed, update.step):
            return model(**inputs)


def pair_losses(
    images: torch.Tensor,
    texts: torch.Tensor,
    image_rows: torch.Tensor,
    text_rows: torch.Tensor,
    settings: ContrastiveSettings,
) -> torch.Tensor:
    """Returns the loss of each pair of a text and its image, see [`Contrastive`].

    Args:
        images, texts (`torch.FloatTensor` of shape `(B, D)` and `(M, D)`): embeddings.
        image_rows, text_rows (`torch.LongTensor` of shape `(B,)` and `(M,)`): the row of each; that of every text is
            that of one image.

    Returns:
        `(M,)`.
    """
    similarities = images @ texts.mT
    is_own = image_rows[:, None] == text_rows
    image_of = is_own.long().argmax(0)
    pairs = torch.arange(len(texts), device=texts.device)
    positives = similarities[image_of, pairs]
    if settings.loss == "info_nce":
        others = is_own[image_of].index_put((pairs, pairs), torch.tensor(False, device=texts.device))
        over_texts = (similarities[image_of] / settings.temperature).masked_fill(others, -torch.inf)
        over_images = similarities.mT / settings.temperature
        positives = positives / settings.temperature
        return (over_texts.logsumexp(-1) + over_images.logsumexp(-1)) / 2 - positives
    other_texts = similarities.masked_fill(is_own, -torch.inf)[image_of]
    other_images = similarities.masked_fill(is_own, -torch.inf).mT
    of_texts, of_images = (
        torch.relu(settings.margin - positives[:, None] + others) for others in (other_texts, other_images)
    )
    if settings.loss == "hardest":
        return of_texts.amax(-1) + of_images.amax(-1)
    return of_texts.sum(-1) + of_images.sum(-1)


def recall(
    images: torch.Tensor, texts: torch.Tensor, image_rows: torch.Tensor, text_rows: torch.Tensor
) -> torch.Tensor:
    """Returns 1 for each text to which its own image is the nearest, else 0: `(M,)` float32."""
    return (image_rows[(images @ texts.mT).argmax(0)] == text_rows).float()
