"""The spatial captioner on pixels: its grid, its captions, images of two sizes, photos to text."""

import numpy as np
import torch
from PIL import Image

from hf_ngsan.models.configuration_spatial_captioner import SpatialCaptionerConfig
from hf_ngsan.models.modeling_spatial_captioner import SpatialCaptionerForConditionalGeneration
from tests.models.spatial_captioner.tiny import VISION, tiny_captioner
from tests.tables import each_row

TOKENS = torch.tensor([[1, 5, 6, 7], [1, 8, 9, 10]])


@torch.no_grad()
def test_vgg_11_gives_14_times_14_cells_row_by_row():
    fields = {"vocab_size": 20, "encoder_layers": 1, "decoder_layers": 1}
    model = SpatialCaptionerForConditionalGeneration(SpatialCaptionerConfig(**fields)).eval()
    pixels = torch.randn(1, 3, 224, 224, generator=torch.Generator().manual_seed(1))
    feature_map = model.model.vision.backbone(pixels).feature_maps[-1]
    assert feature_map.shape == (1, 512, 14, 14)
    assert feature_map.min() == 0 < feature_map.max(), "the map of a convolution and its ReLU, before the last pooling"
    cells = torch.stack([feature_map[0, :, row, column] for row in range(14) for column in range(14)])
    of_cells, of_pixels = (
        model(**given, decoder_input_ids=TOKENS[:1])
        for given in (
            {"visual_features": cells[None]},
            {"pixel_values": pixels},
        )
    )
    torch.testing.assert_close(of_pixels.logits, of_cells.logits, rtol=1e-5, atol=1e-5)


@each_row("num_beams", [1, 3])
def test_captions_of_pixels_are_those_of_their_cells(num_beams):
    model = tiny_captioner(vision_config=VISION, visual_feature_size=None)
    pixels = torch.randn(3, 3, 8, 12, generator=torch.Generator().manual_seed(1))
    cells = model.model.vision(pixels).visual_features
    options = {"num_beams": num_beams, "min_new_tokens": 6, "return_dict_in_generate": True, "output_logits": True}
    of_pixels = model.generate(pixel_values=pixels, **options)
    of_cells = model.generate(visual_features=cells, **options)
    assert torch.equal(of_pixels.sequences, of_cells.sequences)
    torch.testing.assert_close(of_pixels.logits, of_cells.logits)
    alone = model.generate(pixel_values=pixels[1:2], **options)
    rows = slice(num_beams, 2 * num_beams)
    for step in range(6):
        torch.testing.assert_close(of_pixels.logits[step][rows], alone.logits[step], rtol=1e-4, atol=1e-5)


def noise(seed: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (40, 60, 3), dtype=np.uint8))
