"""Attention with optional normalized queries and keys (NSA) and an additive bias, and the layers around it."""

import copy
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import nn
from transformers import initialization as init
from transformers.cache_utils import Cache, EncoderDecoderCache
from transformers.configuration_utils import PreTrainedConfig
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs
from transformers.utils.output_capturing import OutputRecorder

from .geometry import GeometricBias


def eager_attention_forward(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    position_bias: torch.Tensor | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Computes softmax(scaling * Q K^T + bias + mask) V, eq. 2 and 10 of Guo et al. 2020; the reference for SDPA.

    Queries, keys and values are `(batch_size, num_heads, length, head_dim)`; mask and bias broadcast to the scores.
    Returns the output `(batch_size, query_length, num_heads, head_dim)` and the weights, shaped as the scores.
    """
    scores = query @ key.mT * scaling
    if position_bias is not None:
        scores = scores + position_bias
    if attention_mask is not None:
        scores = scores + attention_mask
    weights = nn.functional.softmax(scores, dim=-1, dtype=torch.float32).to(query.dtype)
    weights = nn.functional.dropout(weights, p=dropout, training=module.training)
    return (weights @ value).transpose(1, 2).contiguous(), weights


def attend(
    interface: Callable[..., tuple],
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: Any = None,
    position_bias: torch.Tensor | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Calls an attention implementation, on a CPU in float32 for half-precision states."""
    dtype = query.dtype
    if query.device.type != "cpu" or dtype not in (torch.float16, torch.bfloat16):
        return interface(module, query, key, value, attention_mask, position_bias=position_bias, **kwargs)
    if torch.is_tensor(attention_mask) and attention_mask.is_floating_point():
        attention_mask = attention_mask.float()
    bias = None if position_bias is None else position_bias.float()
    with torch.autocast("cpu", enabled=False):
        single = (query.float(), key.float(), value.float())
        output, weights = interface(module, *single, attention_mask, position_bias=bias, **kwargs)
    return output.to(dtype), None if weights is None else weights.to(dtype)


def with_attention(config: PreTrainedConfig, implementation: str | None) -> PreTrainedConfig:
    """Returns a configuration like this one with another attention implementation, or itself if that is `None`."""
    if implementation is None:
        return config
    changed = copy.copy(config)
    changed._attn_implementation_internal = implementation  # the property would change the parts that both share
    return changed


def masked_moments(
    states: torch.Tensor, mask: torch.Tensor | None, dims: tuple[int, ...]
) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns mean and biased variance over `dims` of states `(B, N, C)`, of tokens where the mask `(B, N)` is 1."""
    if mask is None:
        return states.mean(dims, keepdim=True), states.var(dims, correction=0, keepdim=True)
    weights = mask.to(states.dtype)[..., None]
    count = weights.sum(dims, keepdim=True).clamp(min=1)
    mean = (states * weights).sum(dims, keepdim=True) / count
    variance = ((states - mean).square() * weights).sum(dims, keepdim=True) / count
    return mean, variance


class TrainedInstanceNorm(torch.autograd.Function):
    """Instance normalization in 11 to 16 operators, gradient included, instead of 38."""

    @staticmethod
    def forward(ctx: Any, states: torch.Tensor, mask: torch.Tensor | None, eps: float) -> torch.Tensor:
        share = None  # weight of each token in the moments, `(B, 1, N)`: 1 / n, 0 at padding
        with torch.autocast(states.device.type, enabled=False):
            if mask is None:
                variance, mean = torch.var_mean(states, 1, correction=0, keepdim=True)
                centered = states - mean
            else:
                real = mask.to(states.dtype)
                share = (real / real.sum(1, keepdim=True).clamp(min=1))[:, None]
                centered = states - share @ states
                variance = share @ centered.square()
        scale = torch.rsqrt(variance + eps)
        normalized = centered * scale
        ctx.save_for_backward(normalized, scale, share)
        return normalized

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        """dL/dx_j = r (g_j - w_j (sum_i g_i + y_j sum_i g_i y_i)) with r = 1 / sigma, outputs y and shares w."""
        normalized, scale, share = ctx.saved_tensors
        products = gradient * normalized
        if share is None:
            moments_gradient = torch.addcmul(gradient.mean(1, keepdim=True), normalized, products.mean(1, keepdim=True))
            return (gradient - moments_gradient) * scale, None, None
        moments_gradient = torch.addcmul(gradient.sum(1, keepdim=True), normalized, products.sum(1, keepdim=True))
        return torch.addcmul(gradient, share.mT, moments_gradient, value=-1) * scale, None, None


class InstanceNorm(nn.Module):
    """Instance normalization over the real tokens of each sample, channel by channel: eq. 6 of Guo et al. 2020.

    With one token every channel becomes 0, with two it becomes +-1: normalized self-attention needs many regions.
    """

    def __init__(self, num_channels: int, affine: bool = False, eps: float = 1e-5):
        super().__init__()
        self.eps = eps
        self.affine = ChannelAffine(num_channels) if affine else None

    def forward(self, states: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        """Takes states `(batch_size, num_tokens, num_channels)` and their mask, 1 = real token, 0 = padding."""
        single = states.float()
        if self.training and torch.is_grad_enabled() and not torch.compiler.is_compiling():
            normalized = TrainedInstanceNorm.apply(single, mask, self.eps)
        else:
            mean, variance = masked_moments(single, mask, dims=(1,))
            normalized = (single - mean) * torch.rsqrt(variance + self.eps)
        normalized = normalized.to(states.dtype)
        return normalized if self.affine is None else self.affine(normalized)


class BatchNorm(nn.BatchNorm1d):
    """Batch normalization over all real tokens of a batch: the "BN" row of table 2 of Guo et al. 2020.

    The running variance is the mean of the biased variances that normalize the batches; PyTorch's is unbiased.
    """

    running_mean: torch.Tensor
    running_var: torch.Tensor
    num_batches_tracked: torch.Tensor
    momentum: float

    def __init__(self, num_channels: int, affine: bool = False, eps: float = 1e-5):
        super().__init__(num_channels, eps=eps, affine=affine)

    def forward(self, states: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        single = states.float()
        if self.training:
            mean, variance = (moment.flatten() for moment in masked_moments(single, mask, dims=(0, 1)))
            with torch.no_grad():
                self.running_mean.lerp_(mean.to(self.running_mean), self.momentum)
                self.running_var.lerp_(variance.to(self.running_var), self.momentum)
                self.num_batches_tracked.add_(1)
        else:
            mean, variance = self.running_mean.float(), self.running_var.float()
        normalized = ((single - mean) * torch.rsqrt(variance + self.eps)).to(states.dtype)
        return normalized if self.weight is None else normalized * self.weight + self.bias


class LayerNorm(nn.LayerNorm):
    """Layer normalization over all channels of each token: the "LN" row of table 2 of Guo et al. 2020."""

    def __init__(self, num_channels: int, affine: bool = False):
        super().__init__(num_channels, elementwise_affine=affine)

    def forward(self, states: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        return super().forward(states)


class ChannelAffine(nn.Module):
    """x * scale + shift, channel by channel (gamma and beta of section 4.1 of Guo et al. 2020)."""

    def __init__(self, num_channels: int):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(num_channels))
        self.shift = nn.Parameter(torch.zeros(num_channels))

    def initialize(self) -> None:
        init.ones_(self.scale)
        init.zeros_(self.shift)

    def forward(self, states: torch.Tensor) -> torch.Tensor:
        return states * self.scale + self.shift


def make_norm(kind: str | None, num_channels: int, affine: bool) -> nn.Module | None:
    """Makes a normalization of queries or keys by its name in a configuration; returns `None` for `None`."""
    if kind is None:
        return None
    return {"instance": InstanceNorm, "layer": LayerNorm, "batch": BatchNorm}[kind](num_channels, affine)


def project(states: torch.Tensor, *layers: nn.Module) -> Sequence[torch.Tensor]:
    """Applies linear layers to the same states, in training as one product, which needs fewer gradient operators."""
    linear: Any = layers
    if not linear[0].training or any(type(layer) is not nn.Linear for layer in layers):  # with adapters, or quantized
        return [layer(states) for layer in layers]
    bias = None if linear[0].bias is None else torch.cat([layer.bias for layer in linear])
    projected = nn.functional.linear(states, torch.cat([layer.weight for layer in linear]), bias)
    return projected.split([layer.out_features for layer in linear], dim=-1)


class MultiHeadAttention(nn.Module):
    """Multi-head attention through transformers' attention interface (eager, SDPA, flex).

    `query_norm="instance"` makes it normalized self-attention, eq. 7 of Guo et al. 2020: Softmax(IN(Q) K^T) V. Scores
    are scaled by 1/sqrt(head_dim); `position_bias` is added unscaled.

    Cross-attention accepts C rows of queries for each row of keys: rows `i * C ... i * C + C - 1` of the queries then
    belong to row `i` of the keys (C captions of one image). `layer_idx` is the index of the layer in a decoder's cache.
    """

    def __init__(
        self,
        config: PreTrainedConfig,
        layer_idx: int | None = None,
        is_causal: bool = False,
        query_norm: str | None = None,
        key_norm: str | None = None,
        norm_affine: bool = False,
    ):
        super().__init__()
        self.config = config
        self.layer_idx = layer_idx
        self.is_causal = is_causal
        self.head_dim = config.hidden_size // config.num_attention_heads
        self.scaling = self.head_dim**-0.5
        self.attention_dropout = config.attention_dropout

        size = config.hidden_size
        self.q_proj = nn.Linear(size, size, bias=config.attention_bias)
        self.k_proj = nn.Linear(size, size, bias=config.attention_bias)
        self.v_proj = nn.Linear(size, size, bias=config.attention_bias)
        self.out_proj = nn.Linear(size, size, bias=config.attention_bias)
        self.query_norm = make_norm(query_norm, size, norm_affine)
        self.key_norm = make_norm(key_norm, size, norm_affine)

    def forward(
        self,
        hidden_states: torch.Tensor,
        encoder_hidden_states: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_mask: torch.Tensor | None = None,
        cache: EncoderDecoderCache | None = None,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Args:
            hidden_states (`torch.FloatTensor` of shape `(batch_size, query_length, hidden_size)`).
            encoder_hidden_states (`torch.FloatTensor` of shape `(num_images, num_regions, hidden_size)`, *optional*):
                keys and values for cross-attention; `num_images` divides `batch_size`.
            attention_mask (*optional*): in the form that the attention implementation expects.
            token_mask (`torch.Tensor` of shape `(batch_size, query_length)`, *optional*): 1 = real token, for norms.
            kwargs: `position_bias`, broadcastable to the scores; `attn_implementation`, for this call.

        Returns the output, shaped as `hidden_states`, and the weights `(batch_size, num_heads, query_length,
        key_length)`, `None` unless the implementation is eager.
        """
        if encoder_hidden_states is None:
            query, key, value = project(hidden_states, self.q_proj, self.k_proj, self.v_proj)
            key, value = self.split_keys_and_values(key, value, token_mask)
            if cache is not None:
                key, value = cache.self_attention_cache.update(key, value, self.layer_idx)  # type: ignore[arg-type]
        else:
            query = self.q_proj(hidden_states)
            key, value = self.keys_and_values(encoder_hidden_states, token_mask, cache)
        if self.query_norm is not None:
            query = self.query_norm(query, token_mask)
        return self.weighted_sum(query, key, value, attention_mask, scaling=self.scaling, **kwargs)

    def keys_and_values(
        self, source: Any, token_mask: torch.Tensor | None, cache: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns keys and values of cross-attention, `(num_images, num_heads, length, head_dim)`; uses the cache."""
        if cache is not None and cache.is_updated.get(self.layer_idx):
            layer = cache.cross_attention_cache.layers[self.layer_idx]
            return layer.keys, layer.values
        key, value = self.project_source(source)
        key, value = self.split_keys_and_values(key, value, token_mask)
        if cache is None:
            return key, value
        cache.is_updated[self.layer_idx] = True
        return cache.cross_attention_cache.update(key, value, self.layer_idx)

    def project_source(self, source: torch.Tensor) -> Sequence[torch.Tensor]:
        return project(source, self.k_proj, self.v_proj)

    def split_keys_and_values(
        self, key: torch.Tensor, value: torch.Tensor, token_mask: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if self.key_norm is not None:
            key = self.key_norm(key, token_mask)
        return self.split_heads(key), self.split_heads(value)

    def split_heads(self, states: torch.Tensor) -> torch.Tensor:
        return states.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)

    def weighted_sum(
        self,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        attention_mask: torch.Tensor | None,
        scaling: float,
        position_bias: torch.Tensor | None = None,
        attn_implementation: str | None = None,
        **kwargs: Any,
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """Attends from queries `(batch_size, query_length, hidden_size)` to keys and values, split into heads."""
        batch_size, query_length, _ = query.shape
        captions_per_image = batch_size // key.shape[0]
        query = self.split_heads(query.reshape(key.shape[0], captions_per_image * query_length, -1))
        attention_interface = ALL_ATTENTION_FUNCTIONS.get_interface(
            attn_implementation or self.config._attn_implementation, eager_attention_forward
        )
        kwargs |= {"dropout": self.attention_dropout if self.training else 0.0, "scaling": scaling}
        output, weights = attend(attention_interface, self, query, key, value, attention_mask, position_bias, **kwargs)
        output = self.out_proj(output.reshape(batch_size, query_length, -1))
        if weights is not None and captions_per_image > 1:
            weights = weights.unflatten(2, (captions_per_image, query_length)).transpose(1, 2).flatten(0, 1)
        return output, weights


# Attention weights that a model records of its layers
SELF_ATTENTIONS = OutputRecorder(MultiHeadAttention, index=1, layer_name="self_attn")
CROSS_ATTENTIONS = OutputRecorder(MultiHeadAttention, index=1, layer_name="encoder_attn")


class FeedForward(nn.Module):
    """Linear, ReLU, Linear, applied to each token (Vaswani et al. 2017, section 3.3)."""

    def __init__(self, config: PreTrainedConfig):
        super().__init__()
        self.up = nn.Linear(config.hidden_size, config.intermediate_size)
        self.dropout = nn.Dropout(config.residual_dropout)
        self.down = nn.Linear(config.intermediate_size, config.hidden_size)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return self.down(self.dropout(torch.relu(self.up(hidden_states))))


class TransformerLayer(GradientCheckpointingLayer):
    """A layer whose weights get gradients with reentrant checkpointing even if its inputs require none."""

    def __call__(self, hidden_states: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        if self.gradient_checkpointing and self.training and torch.is_grad_enabled():
            hidden_states.requires_grad_()
        return super().__call__(hidden_states, *args, **kwargs)


class EncoderLayer(TransformerLayer):
    """Self-attention and feed-forward, each LayerNorm(x + sublayer(x)).

    `geometric_bias` lists the kinds of [`GeometricBias`] that the layer adds to its scores; the default is none.
    """

    attention_class: type[MultiHeadAttention] = MultiHeadAttention

    def __init__(self, config: Any, geometric_bias: Sequence[str] = (), **norms: Any):
        super().__init__()
        self.geometric_bias = None
        if geometric_bias:
            sizes = config.hidden_size, config.num_attention_heads, config.geometry_hidden_size
            self.geometric_bias = GeometricBias(*sizes, geometric_bias)
        self.self_attn = self.attention_class(config, **norms)
        self.self_attn_norm: nn.Module = nn.LayerNorm(config.hidden_size)
        self.feed_forward = FeedForward(config)
        self.feed_forward_norm: nn.Module = nn.LayerNorm(config.hidden_size)
        self.dropout = nn.Dropout(config.residual_dropout)

    def forward(
        self,
        hidden_states: torch.Tensor,
        geometry: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_mask: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> torch.Tensor:
        bias = None if self.geometric_bias is None else self.geometric_bias(hidden_states, geometry)
        attended, _ = self.self_attn(
            hidden_states, attention_mask=attention_mask, token_mask=token_mask, position_bias=bias, **kwargs
        )
        hidden_states = self.self_attn_norm(hidden_states + self.dropout(attended))
        return self.feed_forward_norm(hidden_states + self.dropout(self.feed_forward(hidden_states)))


class DecoderLayer(TransformerLayer):
    """Causal self-attention, cross-attention and feed-forward, each LayerNorm(x + sublayer(x))."""

    attention_class: type[MultiHeadAttention] = MultiHeadAttention

    def __init__(self, config: PreTrainedConfig, layer_idx: int):
        super().__init__()
        self.self_attn = self.attention_class(config, layer_idx, is_causal=True)
        self.self_attn_norm = nn.LayerNorm(config.hidden_size)
        self.encoder_attn = self.attention_class(config, layer_idx)
        self.encoder_attn_norm = nn.LayerNorm(config.hidden_size)
        self.feed_forward = FeedForward(config)
        self.feed_forward_norm = nn.LayerNorm(config.hidden_size)
        self.dropout = nn.Dropout(config.residual_dropout)

    def forward(
        self,
        hidden_states: torch.Tensor,
        encoder_hidden_states: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        encoder_attention_mask: torch.Tensor | None = None,
        cache: Cache | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> torch.Tensor:
        attended, _ = self.self_attn(hidden_states, attention_mask=attention_mask, cache=cache, **kwargs)
        hidden_states = self.self_attn_norm(hidden_states + self.dropout(attended))
        attended, _ = self.encoder_attn(
            hidden_states, encoder_hidden_states, attention_mask=encoder_attention_mask, cache=cache, **kwargs
        )
        hidden_states = self.encoder_attn_norm(hidden_states + self.dropout(attended))
        return self.feed_forward_norm(hidden_states + self.dropout(self.feed_forward(hidden_states)))
