"""Visualness of generated words: the share of the image, against the words before, in the prediction of each."""

from collections.abc import Mapping
from typing import Any

import torch
from transformers.tokenization_utils_base import PreTrainedTokenizerBase

from .attention_maps import NOT_FOR_THE_ENCODER, evaluation_mode
from .configuration_hub import Model


class VisualnessMixin(Model):
    """Adds the visualness of finished captions to a captioner with adaptive attention."""

    model: Any

    def word_visualness(self, inputs: Mapping[str, torch.Tensor], sequences: torch.Tensor) -> torch.Tensor:
        """Returns gamma = 1 - beta of every word of generated captions (eq. 21-24 of Zhang et al. 2021).

        The decoder runs over the finished captions: in one pass with a causal language model, else word by word as in
        generation. These are the values of the decoding steps, whether greedy, sampled or of beams.

        Args:
            inputs: outputs of the processor for B images, or `encoder_outputs`, and their `attention_mask` if there is
                one; prefixes and labels are ignored.
            sequences (`torch.LongTensor` of shape `(B * C, length)`): what `generate()` returned, start token included;
                C captions an image, those of one image next to each other.

        Returns:
            `torch.FloatTensor` of shape `(B * C, length)`: at `[i, t]` the value of the word `sequences[i, t]`, in [0,
            1]; 0 at the start token, also behind padding on the left, and at padding.

        Raises:
            ValueError: the captioner has no adaptive attention.
        """
        if not self.config.adaptive_attention:
            raise ValueError("The captioner has no visualness, as its configuration has adaptive_attention=False.")
        visual: Any = {name: value for name, value in inputs.items() if name not in NOT_FOR_THE_ENCODER}
        sequences = sequences.to(self.device)
        words, at_once = sequences[:, :-1], self.config.language_attention == "causal"
        mask = has_begun(words, self.config.pad_token_id).long()
        with evaluation_mode(self), torch.inference_mode():
            if visual.get("pixel_values") is not None:
                visual = self.model.get_visual_tokens(**visual)
            encoded = visual.get("encoder_outputs")
            encoded = (self.model.encoder(**visual) if encoded is None else encoded)[0]
            found, cache = [], None
            for start in range(0, words.shape[1], words.shape[1] if at_once else 1):
                end = words.shape[1] if at_once else start + 1
                outputs = self.model.decoder(
                    input_ids=words[:, start:end],
                    attention_mask=mask[:, :end],
                    encoder_hidden_states=encoded,
                    encoder_attention_mask=visual.get("attention_mask"),
                    cache=cache,
                    use_cache=not at_once,
                    output_visualness=True,
                )
                cache = outputs.cache
                found.append(outputs.visualness[-1])
        visualness = torch.cat([torch.zeros_like(found[0][:, :1]), *found], dim=1)
        return visualness * self.is_word(sequences)

    def word_visualness_pairs(
        self, tokenizer: PreTrainedTokenizerBase, inputs: Mapping[str, torch.Tensor], sequences: torch.Tensor
    ) -> list[list[tuple[str, float]]]:
        """Returns for each sequence its words, without special tokens, with their visualness; see `word_visualness`."""
        silent = set(tokenizer.all_special_ids)
        visualness = self.word_visualness(inputs, sequences)
        return [
            [
                (str(tokenizer.convert_ids_to_tokens(token)), value)
                for token, value in zip(ids, values, strict=True)
                if token not in silent
            ]
            for ids, values in zip(sequences.tolist(), visualness.tolist(), strict=True)
        ]

    def is_word(self, sequences: torch.Tensor) -> torch.Tensor:
        """Returns which tokens of sequences are words, or the end of a caption."""
        ends = torch.tensor(self.config.eos_token_id, device=sequences.device).reshape(-1)
        begun = has_begun(sequences, self.config.pad_token_id)
        behind_start = torch.zeros_like(begun)
        behind_start[:, 1:] = begun[:, :-1]
        ended = (torch.isin(sequences, ends) & behind_start).cumsum(-1) > 0
        real = behind_start & (sequences != self.config.pad_token_id)
        real[:, 1:] &= ~ended[:, :-1]
        return real


def has_begun(sequences: torch.Tensor, padding: int) -> torch.Tensor:
    """Returns where captions `(B, length)` have begun: all but padding on the left, which `generate()` does not see."""
    return (sequences != padding).cumsum(-1) > 0


__all__ = ["VisualnessMixin"]
