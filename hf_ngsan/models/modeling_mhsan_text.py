"""Text encoder of MHSAN: word vectors and simple recurrent units (Lei et al. 2018), in plain PyTorch.

One matrix product covers all time steps, so that each step is only a recurrence of vectors. Its gradients are
hand-written; [`SRURecurrence`] contains the derivation.
"""

import math
from typing import Any

import torch
from torch import nn
from torch.autograd.function import once_differentiable
from transformers import initialization as init
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutput
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs
from transformers.utils.generic import merge_with_config_defaults
from transformers.utils.output_capturing import capture_outputs

from .configuration_hub import HubConfig, strict
from .modeling_base import HubPreTrainedModel, check_exactly_one, refuse_unknown_keywords


@strict
class MHSANTextConfig(HubConfig):
    r"""Configuration of the text encoder of Park et al. 2020: word vectors and simple recurrent units.

    Args:
        vocab_size (`int`, defaults to 20000): words and special tokens.
        word_embedding_size (`int`, defaults to 620): dimension of a word vector.
        hidden_size (`int`, defaults to 2400): dimension of an output, for both directions together.
        num_hidden_layers (`int`, defaults to 4): layers of simple recurrent units.
        bidirectional (`bool`, defaults to `False`): whether layers read in both directions, with half of the channels
            each.
        activation (`str`, defaults to `"tanh"`): activation of the memory: `"tanh"`, `"identity"` or `"relu"`.
        dropout (`float`, defaults to 0.25): on the outputs of all layers except the last.
        input_dropout (`float`, defaults to 0.25): on the inputs of all layers' matrix products.
        highway (`bool`, defaults to `True`): whether layers have a skip connection.
        highway_bias (`float`, defaults to 0.0): initial bias of the reset gate.
        scale_x (`float`, defaults to 1.0): factor of a layer's input in its skip connection; sqrt(3) for models trained
            with releases of `sru` up to 2.1.4.
        initializer_range (`float`, defaults to 0.1): standard deviation of the initial word vectors (inferred).
        pad_token_id (`int`, defaults to 0).
    """

    model_type = "mhsan_text"
    remote_classes = {
        "AutoConfig": "modeling_mhsan_text.MHSANTextConfig",
        "AutoModel": "modeling_mhsan_text.MHSANTextModel",
    }
    field_choices = {"activation": ("tanh", "identity", "relu")}

    vocab_size: int = 20000
    word_embedding_size: int = 620
    hidden_size: int = 2400
    num_hidden_layers: int = 4
    bidirectional: bool = False
    activation: str = "tanh"
    dropout: float | int = 0.25
    input_dropout: float | int = 0.25
    highway: bool = True
    highway_bias: float | int = 0.0
    scale_x: float | int = 1.0
    initializer_range: float | int = 0.1
    pad_token_id: int | None = 0


class SRURecurrence(torch.autograd.Function):
    """The recurrence of a layer with f_t = sigmoid(p_t + v_f * c_(t-1)) and r_t = sigmoid(q_t + v_r * c_(t-1)):

    c_t = u_t + (c_(t-1) - u_t) * f_t and h_t = s_t + (g(c_t) - s_t) * m * r_t.

    The gradient, element by element: let dh_t = dL/dh_t, and let dc_t, dp_t, ... be the gradients of the whole loss by
    c_t, p_t, ...; the derivative of a sigmoid y is y (1 - y).

    - h_t depends on q_t, s_t and c_t:
      dq_t = dh_t (g(c_t) - s_t) m r_t (1 - r_t), ds_t = dh_t (1 - m r_t), and dm = sum_t dh_t (g(c_t) - s_t) r_t.
    - c_t depends on u_t and, through f_t, on p_t:
      du_t = dc_t (1 - f_t) and dp_t = dc_t a_t, with a_t = (c_(t-1) - u_t) f_t (1 - f_t).
    - c_t affects h_t, r_(t+1) through v_r, and c_(t+1) directly and through f_(t+1):
      dc_t = dh_t m r_t g'(c_t) + dq_(t+1) v_r + dc_(t+1) (f_(t+1) + a_(t+1) v_f).
      At the last step, dL/dc_T of the returned memory replaces the terms of t + 1.
    - c_0 is the same without h_0: dc_0 = dq_1 v_r + dc_1 (f_1 + a_1 v_f).
    - The peepholes are shared by all steps and rows: dv_f = sum_t dp_t c_(t-1) and dv_r = sum_t dq_t c_(t-1).
    """

    @staticmethod
    def forward(
        ctx: Any,
        candidates: torch.Tensor,
        forget_inputs: torch.Tensor,
        reset_inputs: torch.Tensor,
        skip: torch.Tensor,
        peephole: torch.Tensor,
        initial: torch.Tensor,
        dropout_mask: torch.Tensor | None,
        activation: str,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Takes u, p, q and s above, `(length, batch_size, size)`, v_f and v_r `(2, size)`, c_0, m and g.

        m `(batch_size, size)` is the same for all steps; a forget input of infinity keeps the memory unchanged. Returns
        h of all steps and c of the last step.
        """
        forget_weights, reset_weights = peephole
        memory = torch.empty(len(candidates) + 1, *initial.shape, dtype=candidates.dtype, device=candidates.device)
        memory[0] = initial
        forget = torch.empty_like(candidates)
        for step, (candidate, forget_input) in enumerate(zip(candidates, forget_inputs, strict=True)):
            torch.addcmul(forget_input, forget_weights, memory[step], out=forget[step]).sigmoid_()
            torch.lerp(candidate, memory[step], forget[step], out=memory[step + 1])
        reset = torch.addcmul(reset_inputs, reset_weights, memory[:-1]).sigmoid_()
        gate = reset if dropout_mask is None else reset * dropout_mask
        hidden = torch.lerp(skip, activated(memory[1:], activation), gate)
        ctx.save_for_backward(candidates, skip, peephole, dropout_mask, memory, forget, reset)
        ctx.activation = activation
        return hidden, memory[-1].clone()

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        d_hidden, d_memory = gradients
        candidates, skip, peephole, dropout_mask, memory, forget, reset = ctx.saved_tensors
        forget_weights, reset_weights = peephole
        before, active = memory[:-1], activated(memory[1:], ctx.activation)
        gate = reset if dropout_mask is None else reset * dropout_mask
        d_gate = d_hidden * (active - skip)
        d_reset = d_gate * gate * (1 - reset)  # dq_t
        d_skip = d_hidden * (1 - gate)  # ds_t
        # dc_t without the term of c_(t+1): from h_t, from r_(t+1), and at the last step from the final memory
        total = d_hidden * gate * slope(active, ctx.activation)
        total[-1].add_(d_memory)
        total[:-1].addcmul_(d_reset[1:], reset_weights)
        slopes = (before - candidates).mul_(forget).mul_(1 - forget)  # a_t
        carried = torch.addcmul(forget, slopes, forget_weights)  # f_t + a_t v_f
        for step in range(len(total) - 1, 0, -1):
            total[step - 1].addcmul_(total[step], carried[step])
        d_forget = total * slopes  # dp_t
        d_peephole = torch.stack([(d_forget * before).sum((0, 1)), (d_reset * before).sum((0, 1))])
        d_initial = torch.addcmul(total[0] * carried[0], d_reset[0], reset_weights)
        d_dropout = None
        if dropout_mask is not None and ctx.needs_input_grad[6]:
            d_dropout = (d_gate * reset).sum(0)
        return total * (1 - forget), d_forget, d_reset, d_skip, d_peephole, d_initial, d_dropout, None


def activated(memory: torch.Tensor, activation: str) -> torch.Tensor:
    if activation == "identity":
        return memory
    return memory.tanh() if activation == "tanh" else memory.relu()


def slope(active: torch.Tensor, activation: str) -> torch.Tensor:
    """Returns the derivative of an activation, from its output."""
    if activation == "tanh":
        return 1 - active * active
    return torch.ones_like(active) if activation == "identity" else (active > 0).to(active.dtype)


class SRULayer(GradientCheckpointingLayer):
    """One layer with one direction, or with both directions side by side; see [`SRU`]."""

    def __init__(
        self,
        input_size: int,
        hidden_size: int,
        dropout: float,
        bidirectional: bool = False,
        activation: str = "identity",
        input_dropout: float = 0.0,
        highway: bool = True,
        highway_bias: float = 0.0,
        scale_x: float = 1.0,
    ) -> None:
        super().__init__()
        self.input_size, self.output_size = input_size, hidden_size * (2 if bidirectional else 1)
        self.bidirectional, self.activation = bidirectional, activation
        self.dropout, self.input_dropout = nn.Dropout(dropout), nn.Dropout(input_dropout)
        self.highway, self.highway_bias, self.scale_x = highway, highway_bias, scale_x
        has_skip_weights = highway and input_size != self.output_size
        # rows: candidate, forget gate, reset gate and, if input and output sizes differ, skip connection
        self.projection = nn.Linear(input_size, (4 if has_skip_weights else 3) * self.output_size, bias=False)
        self.peephole = nn.Parameter(torch.empty(2, self.output_size))
        self.bias = nn.Parameter(torch.empty(2, self.output_size))
        self.initialize()

    @torch.no_grad()
    def initialize(self) -> None:
        """Initializes weights as in the released package: products of unit variance, halved for the gates."""
        bound = (3 / self.input_size) ** 0.5 * (1 - self.input_dropout.p) ** 0.5
        weight = torch.empty(self.projection.weight.shape).uniform_(-bound, bound)
        for index, factor in enumerate([(1 - self.dropout.p) ** 0.5, 0.5**0.5, 0.5**0.5, self.scale_x]):
            weight[index * self.output_size : (index + 1) * self.output_size] *= factor
        init.copy_(self.projection.weight, weight.to(self.projection.weight))
        init.uniform_(self.peephole, -(1.5**0.5), 1.5**0.5)
        bias = torch.zeros(self.bias.shape)
        bias[1] = self.highway_bias
        init.copy_(self.bias, bias.to(self.bias))

    def forward(
        self, inputs: torch.Tensor, initial: torch.Tensor | None, padding: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Returns outputs `(batch_size, length, size)`, stored time-first, and the final memory.

        `initial` is the initial memory, 0 if `None`; `padding` is a bool tensor `(length, batch_size, 1)`.
        """
        inputs = inputs.transpose(0, 1)
        batch_size = inputs.shape[1]
        dropped = inputs
        if self.training and self.input_dropout.p:
            dropped = inputs * self.input_dropout(inputs.new_ones(inputs.shape[1:]))
        dtype = self.bias.dtype  # under autocast, products have another dtype
        candidates, forget, reset, *skip = self.projection(dropped).to(dtype).split(self.output_size, dim=-1)
        if not skip:
            skip = [inputs.to(dtype) * self.scale_x if self.highway else torch.zeros_like(candidates)]
        terms = [candidates, forget + self.bias[0], reset + self.bias[1], *skip]
        if self.bidirectional:
            terms = [self.with_second_half_reversed(term) for term in terms]
        if padding is not None:
            both = padding.expand(-1, -1, self.output_size)
            both = self.with_second_half_reversed(both) if self.bidirectional else both
            terms[1] = terms[1].masked_fill(both, math.inf)
        mask = None
        if self.training and self.dropout.p:
            mask = self.dropout(candidates.new_ones(batch_size, self.output_size))
        if initial is None:
            initial = candidates.new_zeros(batch_size, self.output_size)
        outputs, memory = SRURecurrence.apply(*terms, self.peephole, initial.to(dtype), mask, self.activation)
        if self.bidirectional:
            outputs = self.with_second_half_reversed(outputs)
        if padding is not None:
            outputs = outputs.masked_fill(padding, 0)
        return outputs.transpose(0, 1), memory

    def with_second_half_reversed(self, states: torch.Tensor) -> torch.Tensor:
        """Returns states `(length, batch_size, size)` with the channels of the backward direction reversed in time."""
        forward, backward = states.chunk(2, dim=-1)
        return torch.cat([forward, backward.flip(0)], dim=-1)


class SRU(nn.Module):
    """A stack of simple recurrent units (Lei et al. 2018) with any number of layers and one or two directions.

    A layer computes, for the input x_t, with `scale_x` * x_t instead of W_s x_t if input and output sizes are equal:

    - f_t = sigmoid(W_f x_t + v_f * c_(t-1) + b_f) and r_t = sigmoid(W_r x_t + v_r * c_(t-1) + b_r)
    - c_t = f_t * c_(t-1) + (1 - f_t) * W x_t
    - h_t = r_t * g(c_t) + (1 - r_t) * W_s x_t

    Padding on either side has no effect on other positions, and its output is 0.

    Args:
        input_size, hidden_size, num_layers: dimension of the inputs and of one direction, and number of layers.
        dropout: rate on g(c_t) - W_s x_t in all layers except the last. Like `input_dropout`, the rate on the inputs of
            matrix products (`rnn_dropout` of the released package), it uses one mask for all time steps.
        options: see [`MHSANTextConfig`]; releases up to 2.1.4 use sqrt(1 + 2 exp(highway_bias)) as `scale_x`.
    """

    def __init__(
        self, input_size: int, hidden_size: int, num_layers: int = 2, dropout: float = 0.0, **options: Any
    ) -> None:
        super().__init__()
        self.layers = nn.ModuleList()
        for index in range(num_layers):
            layer = SRULayer(input_size, hidden_size, dropout if index < num_layers - 1 else 0.0, **options)
            self.layers.append(layer)
            input_size = layer.output_size

    def forward(
        self,
        inputs: torch.Tensor,
        attention_mask: torch.Tensor | None = None,
        initial_memory: torch.Tensor | None = None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Takes inputs `(batch_size, length, input_size)`, a mask (1 = real), and c_0 of each layer.

        Returns the outputs of the last layer, `(batch_size, length, output_size)`, and the final memories, shaped as
        `initial_memory`: `(num_layers, batch_size, output_size)`, forward channels before backward ones.
        """
        states, memories = inputs, []
        padding = None if attention_mask is None else (attention_mask == 0).T[..., None]
        for index, layer in enumerate(self.layers):
            states, memory = layer(states, None if initial_memory is None else initial_memory[index], padding)
            memories.append(memory)
        return states, torch.stack(memories)


class MHSANTextModel(HubPreTrainedModel):
    """Word vectors and simple recurrent units (section 3.2 of Park et al. 2020)."""

    config: MHSANTextConfig
    base_model_prefix = ""
    main_input_name = "input_ids"
    input_modalities = ["text"]
    _no_split_modules = ["SRULayer"]
    _can_compile_fullgraph = False
    _can_record_outputs = {"hidden_states": SRULayer}

    def __init__(self, config: MHSANTextConfig):
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.word_embedding_size, config.pad_token_id)
        options = ("bidirectional", "activation", "dropout", "input_dropout", "highway", "highway_bias", "scale_x")
        size = config.hidden_size // 2 if config.bidirectional else config.hidden_size
        settings = {name: getattr(config, name) for name in options}
        self.sru = SRU(config.word_embedding_size, size, config.num_hidden_layers, **settings)
        self.gradient_checkpointing = False
        self.post_init()

    @merge_with_config_defaults
    @capture_outputs
    def forward(
        self,
        input_ids: torch.Tensor | None = None,
        attention_mask: torch.Tensor | None = None,
        inputs_embeds: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutput:
        """Takes words `(batch_size, length)` or their vectors, and a mask: 1 = real, 0 = padding on any side."""
        refuse_unknown_keywords(self, kwargs)
        check_exactly_one(input_ids=input_ids, inputs_embeds=inputs_embeds)
        words = self.embed_tokens(input_ids) if inputs_embeds is None else inputs_embeds
        states, _ = self.sru(words.to(self.embed_tokens.weight.dtype), attention_mask)
        return BaseModelOutput(last_hidden_state=states)

    def last_states(self, states: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        """Returns the states `(B, hidden_size)` after the last word, and after the first for backward channels."""
        rows, length = torch.arange(len(states), device=states.device), states.shape[1]
        real = (attention_mask != 0).long()
        last = states[rows, length - 1 - real.flip(1).argmax(1)]
        if not self.config.bidirectional:
            return last
        first = states[rows, real.argmax(1)]
        return torch.cat([last.chunk(2, dim=-1)[0], first.chunk(2, dim=-1)[1]], dim=-1)


__all__ = ["SRU", "MHSANTextConfig", "MHSANTextModel", "SRULayer"]
