"""A real captioner with three words, whose captions can all be enumerated, and their rewards."""

import itertools

import torch
from transformers.modeling_outputs import BaseModelOutput

from hf_ngsan import NGSANConfig, NGSANForConditionalGeneration
from hf_ngsan.training.objectives.policy import Policy

PAD, START, END = 0, 1, 2
WORDS = (3, 4, 5)
LONGEST = 3


def toy_captioner(seed: int = 5, vocab_size: int = 6, **fields) -> NGSANForConditionalGeneration:
    config = NGSANConfig(
        vocab_size=vocab_size,
        visual_feature_size=3,
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        geometry_hidden_size=4,
        **fields,
    )
    generator = torch.Generator().manual_seed(seed)
    model = NGSANForConditionalGeneration(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():  # far from uniform, and different after each prefix
            parameter.add_(0.4 * torch.randn(parameter.shape, generator=generator))
        model.lm_head.weight.mul_(0.6)
        model.lm_head.bias.zero_()
    return model


def toy_image(number: int = 1, regions: int = 2, seed: int = 5) -> dict[str, torch.Tensor]:
    """The same image, `number` times."""
    generator = torch.Generator().manual_seed(seed)
    features = torch.rand(1, regions, 3, generator=generator)
    corners = torch.rand(1, regions, 2, generator=generator) / 2
    boxes = torch.cat([corners, corners + 0.3], dim=-1)
    return {
        "visual_features": features.repeat(number, 1, 1),
        "visual_boxes": boxes.repeat(number, 1, 1),
        "attention_mask": torch.ones(number, regions, dtype=torch.long),
    }


def toy_policy(**settings) -> Policy:
    return Policy(
        **{
            "eos_token_id": END,
            "pad_token_id": PAD,
            "start_token_id": START,
            "suppressed_tokens": (PAD, START),
            "max_new_tokens": LONGEST,
            **settings,
        }
    )


def all_captions(longest: int = LONGEST) -> list[tuple[int, ...]]:
    """All captions that end, and those that were truncated without an end."""
    finished = [(*words, END) for length in range(longest) for words in itertools.product(WORDS, repeat=length)]
    return finished + list(itertools.product(WORDS, repeat=longest))


class ToyRewards:
    """A number for each caption, different for all captions and far from 0."""

    def __call__(self, token_ids: torch.Tensor, image_indices: torch.Tensor) -> torch.Tensor:
        return torch.tensor([self.of(ids) for ids in token_ids.tolist()])

    def of(self, ids) -> float:
        words = list(ids)[: list(ids).index(END) + 1] if END in ids else list(ids)
        value = 0
        for word in words:
            value = 7 * value + word
        return 2.0 + (37 * value) % 101 / 50


def log_probabilities(model, captions, temperature: float = 1.0, top_p: float = 1.0) -> dict[tuple, torch.Tensor]:
    """log p of each caption, word by word, with the nucleus found by a loop; captions outside it are missing."""
    image = toy_image()
    states = model.get_encoder()(**image).last_hidden_state
    steps: dict[tuple, torch.Tensor] = {}

    def step(prefix):
        if prefix not in steps:
            ids = torch.tensor([[START, *prefix]])
            encoded = BaseModelOutput(last_hidden_state=states)
            output = model(encoder_outputs=encoded, attention_mask=image["attention_mask"], decoder_input_ids=ids)
            logits = output.logits[0, -1].double() / temperature
            allowed = torch.tensor([END, *WORDS])
            probabilities = logits[allowed].softmax(-1)
            mass, nucleus = 0.0, []
            for index in probabilities.argsort(descending=True).tolist():
                if mass >= top_p:
                    break
                nucleus.append(allowed[index].item())
                mass += probabilities[index].item()
            within = logits[nucleus].log_softmax(-1)
            steps[prefix] = dict(zip(nucleus, within, strict=True))
        return steps[prefix]

    result = {}
    for caption in captions:
        parts = []
        for position, word in enumerate(caption):
            options = step(caption[:position])
            if word not in options:
                break
            parts.append(options[word])
        else:
            result[caption] = torch.stack(parts).sum()
    return result
