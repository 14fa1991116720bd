"""`generate()` of RSTNet: visualness of generated words, and beam search in which finished captions keep beams."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from .captioning import CaptioningForConditionalGeneration, mask_after_eos
from .modeling_rstnet_release import competing_finished_beams

VISUAL_INPUTS = ("visual_features", "visual_boxes", "attention_mask", "encoder_outputs")


class VisualnessGenerationMixin(CaptioningForConditionalGeneration):
    """Adds `return_visualness` to `generate()`."""

    def beam_search_arguments(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        if self.config.finished_beams != "compete":
            return {}
        return competing_finished_beams(arguments, self.generation_config, self.device)

    @torch.no_grad()
    def generate(
        self, inputs: torch.Tensor | None = None, *args: Any, return_visualness: bool = False, **kwargs: Any
    ) -> Any:
        """Captions images; see [`~captioning.CaptioningForConditionalGeneration.generate`].

        With `return_visualness=True` and `return_dict_in_generate=True`, the output also has `visualness`, shaped like
        its `sequences` (see [`word_visualness`]).
        """
        settings = kwargs.get("generation_config") or self.generation_config
        inputs = self.replace_pixels(inputs, kwargs)
        if return_visualness and not kwargs.get("return_dict_in_generate", settings.return_dict_in_generate):
            raise ValueError("return_visualness=True needs return_dict_in_generate=True.")
        num_beams = kwargs.get("num_beams", settings.num_beams) or 1
        if num_beams > 1:
            kwargs |= self.beam_search_arguments(kwargs)
        visual = {name: kwargs[name] for name in VISUAL_INPUTS if name in kwargs}
        if inputs is not None:
            visual["visual_features"] = inputs
        if visual.get("encoder_outputs") is not None:
            visual["encoder_outputs"] = (visual["encoder_outputs"][0],)  # generate() repeats them for beams in place
        output = super().generate(inputs, *args, **kwargs)
        if return_visualness:
            output["visualness"] = self.word_visualness(visual, output.sequences)
        return output

    @torch.no_grad()
    def word_visualness(self, inputs: Mapping[str, torch.Tensor], sequences: torch.Tensor) -> torch.Tensor:
        """Returns gamma = 1 - beta of every word of generated captions (eq. 21-24), 0 at the start and at padding.

        Runs the decoder over the finished captions: in one pass with a causal language model, otherwise word by word as
        in generation. The values are those of the decoding steps of greedy search, sampling and beam search.

        Args:
            inputs: outputs of the processor for B images, or `encoder_outputs` and their `attention_mask`.
            sequences (`torch.LongTensor` of shape `(B * C, length)`): result of `generate()`, start token included; C
                captions per image, next to each other.
        """
        if not self.config.adaptive_attention:
            raise ValueError("The captioner has no visualness, because its configuration has adaptive_attention=False.")
        visual: Any = {name: inputs[name] for name in VISUAL_INPUTS if name in inputs}
        if inputs.get("pixel_values") is not None:
            visual = self.model.get_visual_tokens(inputs["pixel_values"], inputs.get("pixel_mask"), **visual)
        encoded = visual.get("encoder_outputs")
        encoded = (self.model.encoder(**visual) if encoded is None else encoded)[0]
        sequences = sequences.to(self.device)
        words = sequences[:, :-1]
        mask = (torch.ne(words, self.config.pad_token_id).cumsum(-1) > 0).long()  # 0 for padding on the left
        step = words.shape[1] if self.config.language_attention == "causal" else 1
        parts, cache = [], None
        for start in range(0, words.shape[1], step):
            outputs = self.model.decoder(
                input_ids=words[:, start : start + step],
                attention_mask=mask[:, : start + step],
                encoder_hidden_states=encoded,
                encoder_attention_mask=visual.get("attention_mask"),
                cache=cache,
                use_cache=step == 1,
                output_visualness=True,
            )
            cache = outputs.cache
            parts.append(outputs.visualness[-1])
        visualness = torch.cat([torch.zeros_like(parts[0][:, :1]), *parts], dim=1)
        # Start token, padding and tokens after the end are not words.
        is_word = nn.functional.pad(mask, (1, 0)).bool() & torch.ne(sequences, self.config.pad_token_id)
        ends = mask_after_eos(sequences.masked_fill(~is_word, -1), self.config.eos_token_id)
        return visualness * (is_word & ~ends)
