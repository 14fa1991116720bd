"""The spatial captioner on pixels: its grid, its captions, images of two sizes, photos to text."""

import numpy as np
import torch
from PIL import Image
from transformers import AutoModelForImageTextToText, AutoProcessor

from hf_ngsan.models.configuration_spatial_captioner import SpatialCaptionerConfig
from hf_ngsan.models.image_processing_captioning import CaptioningImageProcessor
from hf_ngsan.models.modeling_spatial_captioner import SpatialCaptionerForConditionalGeneration
from hf_ngsan.models.processing_spatial_captioner import SpatialCaptionerProcessor
from tests.models.spatial_captioner.tiny import VISION, tiny_captioner
from tests.models.tiny import WORDS, tiny_tokenizer
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


@torch.no_grad()
def test_images_of_two_sizes_share_a_batch():
    """Each has its own number of cells: of positions, and in the temperature."""
    model = tiny_captioner(vision_config=VISION, visual_feature_size=None)
    pixels, mask = torch.zeros(2, 3, 8, 12), torch.zeros(2, 8, 12, dtype=torch.long)
    images = [torch.randn(3, 8, 12), torch.randn(3, 6, 8)]
    for row, image in enumerate(images):
        pixels[row, :, : image.shape[1], : image.shape[2]] = image
        mask[row, : image.shape[1], : image.shape[2]] = 1
    together = model(pixel_values=pixels, pixel_mask=mask, decoder_input_ids=TOKENS).logits
    for row, image in enumerate(images):
        alone = model(pixel_values=image[None], decoder_input_ids=TOKENS[row : row + 1]).logits
        torch.testing.assert_close(together[row : row + 1], alone, rtol=1e-5, atol=1e-5)


def noise(seed: int) -> Image.Image:
    return Image.fromarray(np.random.default_rng(seed).integers(0, 256, (40, 60, 3), dtype=np.uint8))


@torch.no_grad()
def test_from_images_to_captions_and_back_from_a_folder(tmp_path):
    model = tiny_captioner(vision_config=VISION, visual_feature_size=None)
    processor = SpatialCaptionerProcessor(CaptioningImageProcessor(size={"height": 32, "width": 48}), tiny_tokenizer())
    images = [noise(0), noise(1), noise(2)]
    tokens = model.generate(**processor(images=images), min_new_tokens=5)
    captions = processor.batch_decode(tokens, skip_special_tokens=True)
    assert all(caption and set(caption.split()) <= {*WORDS, "<unk>"} for caption in captions)
    for part in (model, processor):
        part.save_pretrained(tmp_path)
    loaded, processor = AutoModelForImageTextToText.from_pretrained(tmp_path), AutoProcessor.from_pretrained(tmp_path)
    assert (type(loaded), type(processor)) == (type(model), SpatialCaptionerProcessor)
    inputs = processor(images=images, captions=["a red ball", "a box", "two"])
    assert torch.equal(loaded.generate(pixel_values=inputs["pixel_values"], min_new_tokens=5), tokens)
    assert torch.equal(loaded(**inputs).loss, model(**inputs).loss)
