"""Labels can be made in several ways; the loss of a caption is the same."""

import torch
from torch.nn.functional import pad

from tests.models.architectures import ARCHITECTURES, LABELS, every_architecture, make

START = 1
BEHIND_START = torch.cat([torch.full((4, 1), START), LABELS], dim=1)
PADDED_LEFT = torch.tensor([[5, 6, 7, 2], [-100, 8, 9, 2], [-100, -100, 10, 2], [11, 12, 13, 2]])
SAME = {"rtol": 1e-5, "atol": 1e-6}


def labels_of_all_kinds() -> dict[str, dict[str, torch.Tensor]]:
    """Arguments of the models that represent the captions of `LABELS`."""
    left = pad(PADDED_LEFT, (1, 0), value=-100)
    left[torch.arange(4), (left == -100).sum(1) - 1] = START
    inputs = torch.where(BEHIND_START == -100, 0, BEHIND_START)
    return {
        "start token": {"labels": BEHIND_START},
        "padding on the left": {"labels": PADDED_LEFT},
        "both": {"labels": left},
        "a mask of them": {"labels": left, "decoder_attention_mask": (left != -100).long()},
        "the inputs themselves": {"labels": BEHIND_START, "decoder_input_ids": inputs},
        "inputs padded on the left": {
            "labels": left,
            "decoder_input_ids": left.clamp(min=0),
            "decoder_attention_mask": (left != -100).long(),
        },
        "labels beside such inputs": {
            "labels": PADDED_LEFT,
            "decoder_input_ids": left.clamp(min=0)[:, :-1],
            "decoder_attention_mask": (left != -100).long()[:, :-1],
        },
    }


@every_architecture
@torch.no_grad()
def test_a_start_token_in_front_and_the_side_of_the_padding_change_no_loss(name, variant):
    model, inputs = make(name, variant), ARCHITECTURES[name].inputs()
    expected = model(**inputs, labels=LABELS).loss
    for case, arguments in labels_of_all_kinds().items():
        before = arguments["labels"].clone()
        torch.testing.assert_close(model(**inputs, **arguments).loss, expected, **SAME, msg=case)
        assert torch.equal(arguments["labels"], before), case
