"""Beam search of RSTNet as released, at paper size with random weights, against a straightforward one.

The straightforward search caches the keys and values of words, as in the release. At each step, it computes the keys
and values of the grid again for every beam, and runs BERT on all words so far, each as a separate input at position 0,
as in the release. Both encode the grids in the same way and return the same captions; they take turns, and the result
is the ratio of each round. The ratio of processor time is also printed, because it is more robust to other load.

    python benchmarks/rstnet_decoding.py
    python benchmarks/rstnet_decoding.py --images 50 --rounds 3
"""

import argparse
import statistics
import sys
import time
from collections.abc import Callable

import torch
from torch import nn

from hf_ngsan import RSTNetConfig, RSTNetForConditionalGeneration
from hf_ngsan.models.modeling_rstnet_release import grid_positions

REQUIRED_RATIO = 5


class StraightforwardSearch:
    """Straightforward beam search with the weights of a captioner."""

    def __init__(self, model: RSTNetForConditionalGeneration, beams: int, steps: int) -> None:
        self.model, self.beams, self.steps = model, beams, steps
        self.decoder = model.model.decoder
        self.config = model.config

    def captions(self, features: torch.Tensor) -> torch.Tensor:
        """Returns the best caption `(images, 1 + steps)` of each grid `(images, cells, feature dimension)`."""
        images, config = len(features), self.config
        memory = self.model.model.encoder(features).last_hidden_state.repeat_interleave(self.beams, 0)
        placed = memory + grid_positions(*config.grid_size, config.hidden_size)
        words = torch.full((images, self.beams, 1), config.decoder_start_token_id)
        scores = torch.zeros(images, self.beams)
        scores[:, 1:] = -float("inf")  # all beams are equal at the start
        kept: list[torch.Tensor] = [torch.zeros(2, len(memory), 0, config.hidden_size) for _ in self.decoder.layers]
        for _ in range(self.steps):
            finished = (words[..., 1:] == config.eos_token_id).any(-1)
            log_probs = self.next_word(words.flatten(0, 1), placed, memory, kept).unflatten(0, (images, self.beams))
            log_probs[finished] = -float("inf")
            log_probs[..., config.pad_token_id].masked_fill_(finished, 0)
            scores, best = (scores[..., None] + log_probs).flatten(1).topk(self.beams)
            origin, word = best // config.vocab_size, best % config.vocab_size
            words = torch.cat([words.gather(1, origin[..., None].expand_as(words)), word[..., None]], dim=-1)
            rows = (origin + self.beams * torch.arange(images)[:, None]).flatten()
            kept[:] = [states[:, rows] for states in kept]
        return words[:, 0]

    def next_word(
        self, words: torch.Tensor, placed: torch.Tensor, memory: torch.Tensor, kept: list[torch.Tensor]
    ) -> torch.Tensor:
        """Returns log-probabilities `(beams, vocabulary)` after words `(beams, length)`; extends the cache."""
        real = (words != self.config.pad_token_id).float()
        signal = self.language_signal(words, real)[:, -1:]
        last = real[:, -1:, None]
        states = self.decoder.embed_tokens(words[:, -1:]) + self.positions(self.decoder, words, real)[:, -1:]
        for index, layer in enumerate(self.decoder.layers):
            added = torch.stack([layer.self_attn.k_proj(states), layer.self_attn.v_proj(states)])
            kept[index] = torch.cat([kept[index], added], dim=2)
            attended = self.attention(layer.self_attn, states, *kept[index], real[:, None])
            states = self.residual(layer.self_attn_norm, states, attended) * last
            key, value = layer.encoder_attn.k_proj(placed), layer.encoder_attn.v_proj(memory)
            if layer.is_adaptive:
                projected = layer.encoder_attn.signal_proj(signal)
                key, value = torch.cat([key, projected], dim=1), torch.cat([value, projected], dim=1)
            attended = self.attention(layer.encoder_attn, states, key, value)
            states = self.residual(layer.encoder_attn_norm, states, attended) * last
            states = self.feed_forward(layer.feed_forward, states) * last
        return self.model.lm_head(states[:, 0]).log_softmax(-1)

    def language_signal(self, words: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
        """Returns the language signal `(beams, length, hidden_size)` for words `(beams, length)`."""
        module = self.decoder.language_model
        encoded = module.text_encoder(words.reshape(-1, 1)).last_hidden_state.reshape(*words.shape, -1)
        states = module.projection(encoded) + self.positions(module, words, real)
        layer, length = module.layer, words.shape[1]
        key, value = layer.self_attn.k_proj(states), layer.self_attn.v_proj(states)
        visible = torch.ones(length, length).tril() * real[:, None]
        attended = self.attention(layer.self_attn, states, key, value, visible)
        states = self.residual(layer.self_attn_norm, states, attended) * real[..., None]
        return self.feed_forward(layer.feed_forward, states) * real[..., None]

    def positions(self, module: nn.Module, words: torch.Tensor, real: torch.Tensor) -> torch.Tensor:
        return module.positions.table[torch.arange(1, words.shape[1] + 1) * real.long()]

    def attention(
        self,
        module: nn.Module,
        states: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        visible: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Returns the output of attention for projected keys and values."""

        def heads(projected: torch.Tensor) -> torch.Tensor:
            return projected.unflatten(-1, (self.config.num_attention_heads, -1)).transpose(1, 2)

        query, key, value = heads(module.q_proj(states)), heads(key), heads(value)
        scores = query @ key.mT / query.shape[-1] ** 0.5
        if visible is not None:
            scores = scores.masked_fill(visible[:, None] == 0, -float("inf"))
        return module.out_proj((scores.softmax(-1) @ value).transpose(1, 2).flatten(2))

    def residual(self, module: nn.Module, states: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        return module.outer_norm(states + module.norm(states + attended))

    def feed_forward(self, module: nn.Module, states: torch.Tensor) -> torch.Tensor:
        return module.norm(states + module.feed_forward(states))


def make_captioner(sizes: argparse.Namespace) -> RSTNetForConditionalGeneration:
    """Returns a captioner of the paper's size as released, with BERT-base."""
    torch.manual_seed(0)
    fields = {"hidden_size": sizes.hidden_size, "intermediate_size": 4 * sizes.hidden_size}
    bert = {"model_type": "bert", "num_hidden_layers": sizes.bert_layers}
    config = RSTNetConfig.from_release(
        vocab_size=sizes.vocabulary, language_model_config={"text_encoder_config": bert}, **fields
    )
    return RSTNetForConditionalGeneration(config).eval()


def seconds(work: Callable[[], torch.Tensor]) -> tuple[float, float, torch.Tensor]:
    """Returns elapsed and processor time, and the result."""
    elapsed, worked = time.perf_counter(), time.process_time()
    captions = work()
    return time.perf_counter() - elapsed, time.process_time() - worked, captions


def same_captions(first: torch.Tensor, other: torch.Tensor, end: int) -> bool:
    """Returns whether captions are the same up to their end tokens."""

    def ended(words: list[int]) -> list[int]:
        return words[: words.index(end)] if end in words else words

    return [*map(ended, first.tolist())] == [*map(ended, other.tolist())]


def describe(values: list[float]) -> str:
    return f"{statistics.median(values):8.3f}   ({min(values):.3f} to {max(values):.3f})"


@torch.no_grad()
def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=10, help="captioned together in a round (%(default)s)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--beams", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20, help="tokens of a caption")
    parser.add_argument("--hidden-size", type=int, default=512)
    parser.add_argument("--vocabulary", type=int, default=10201)
    parser.add_argument("--bert-layers", type=int, default=12)
    parser.add_argument("--threads", type=int, default=2)
    sizes = parser.parse_args()
    torch.set_num_threads(sizes.threads)
    model = make_captioner(sizes)
    search = StraightforwardSearch(model, sizes.beams, sizes.steps)
    options = {"num_beams": sizes.beams, "max_new_tokens": sizes.steps}
    ways = {
        "straightforward": search.captions,
        "ours": lambda features: model.generate(visual_features=features, **options),
    }
    speeds: dict[str, list[float]] = {name: [] for name in ways}
    ratios: dict[str, list[float]] = {"ratio": [], "processor time": []}
    for number in range(sizes.rounds + 1):
        features = torch.rand(sizes.images, 7 * 7, model.config.visual_feature_size)
        elapsed, worked, ids = {}, {}, {}
        for name in list(ways)[:: -1 if number % 2 else 1]:
            elapsed[name], worked[name], ids[name] = seconds(lambda work=ways[name], batch=features: work(batch))
        assert same_captions(*ids.values(), end=model.config.eos_token_id), ids
        if number:  # the first round warms up
            for name, took in elapsed.items():
                speeds[name].append(sizes.images / took)
            for name, took in zip(ratios, (elapsed, worked), strict=True):
                ratios[name].append(took["straightforward"] / took["ours"])
    print(
        f"{sizes.images} images together, beam {sizes.beams}, {sizes.steps} steps, {sizes.threads} threads: median of "
        f"{sizes.rounds} rounds (smallest to largest)"
    )
    for name, values in speeds.items():
        print(f"{name:<16}{describe(values)} images/s")
    print(f"{'ratio':<16}{describe(ratios['ratio'])}   required: at least {REQUIRED_RATIO}")
    print(f"{'processor time':<16}{describe(ratios['processor time'])}")
    return 0 if statistics.median(ratios["ratio"]) >= REQUIRED_RATIO else 1


if __name__ == "__main__":
    sys.exit(main())
