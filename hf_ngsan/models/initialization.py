"""PyTorch's own initial weights, for models whose released code keeps them."""

import math

import torch
from torch import nn
from transformers import initialization as init


@torch.no_grad()
def initialize_as_pytorch(module: nn.Module) -> None:
    """Initializes a linear map or an LSTM as PyTorch does; leaves any other module alone."""
    if isinstance(module, nn.Linear):
        init.kaiming_uniform_(module.weight, a=math.sqrt(5))
        if module.bias is not None:
            bound = module.in_features**-0.5
            init.uniform_(module.bias, -bound, bound)
    elif isinstance(module, nn.LSTM):
        bound = module.hidden_size**-0.5
        for parameter in module.parameters():
            init.uniform_(parameter, -bound, bound)
