"""Dropout with masks that depend on the rows of the data: equal in any batch, micro-batch and process.

```python
with RowDropout(row_index, seed=0, step=17):
    outputs = model(**inputs)
```
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

GOLDEN_RATIO = 0x9E3779B97F4A7C15 - 2**64
"""The increment of SplitMix64, 2 ** 64 / golden ratio, as a signed number; below, its two mixing steps."""
MIXERS = ((30, 0xBF58476D1CE4E5B9 - 2**64), (27, 0x94D049BB133111EB - 2**64))


class RowDropout(TorchFunctionMode):
    """Makes every dropout mask inside the `with` block a function of the update, the row and the place in the tensor.

    Repeated forward passes have equal masks, and the mask of a row does not depend on the other rows of the batch, nor
    on padding: the mask of an element depends on its indices in the row, not on the row's length.

    It applies to `torch.nn.functional.dropout`, which `nn.Dropout` calls, and to the dropout of
    `scaled_dot_product_attention`, on tensors whose first dimension is the rows, or a multiple of them (captions of
    each image, say). Other tensors and functions with a dropout inside (`nn.MultiheadAttention`, `nn.LSTM`) get the
    masks of PyTorch's generator.

    Args:
        keys: a number for each row of the batch.
        seed, step: seed of the run, and number of the update.
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
        if enable_gqa:
            groups = query.shape[-3] // key.shape[-3]
            key, value = key.repeat_interleave(groups, -3), value.repeat_interleave(groups, -3)
        scores = query @ key.mT * (query.shape[-1] ** -0.5 if scale is None else scale)
        if is_causal:
            allowed = torch.ones(scores.shape[-2:], dtype=torch.bool, device=scores.device).tril()
            scores = scores.masked_fill(~allowed, -torch.inf)
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            scores = scores.masked_fill(~attn_mask, -torch.inf)
        elif attn_mask is not None:
            scores = scores + attn_mask
        return self.dropout(scores.softmax(-1), dropout_p) @ value

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
    """Returns the numbers shifted as unsigned integers; the operator `>>` keeps the sign."""
    return (numbers >> bits) & ((1 << (64 - bits)) - 1)
