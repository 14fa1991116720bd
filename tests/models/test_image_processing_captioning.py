"""The image processor of the captioners: transformers' common tests, geometry, normalization and padding."""

import unittest

import numpy as np
from hypothesis import example, given, settings
from hypothesis import strategies as st
from PIL import Image

from hf_ngsan.models.image_processing_captioning import CaptioningImageProcessor
from tests.tables import each_row
from tests.transformers_suite import import_suite, is_available

MEAN, STD = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])


def noise(height: int, width: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).integers(0, 256, (height, width, 3), dtype=np.uint8)


def test_pixels_are_resized_scaled_and_normalized():
    image = noise(40, 60)
    [pixels] = CaptioningImageProcessor(size={"height": 20, "width": 30})(image, return_tensors="np").pixel_values
    resized = np.asarray(Image.fromarray(image).resize((30, 20), Image.Resampling.BILINEAR))
    expected = ((resized / 255 - MEAN) / STD).transpose(2, 0, 1)
    assert pixels.dtype == np.float32
    np.testing.assert_allclose(pixels, expected, atol=1e-5)


@each_row(
    ("height", "width", "expected"),
    [(425, 640, (600, 904)), (640, 425, (904, 600)), (480, 640, (600, 800)), (300, 640, (469, 1000))],
)
def test_edges_are_rounded_to_the_nearest_pixel(height, width, expected):
    """As detectron2 does: 640 * 600 / 425 is 903.5, 300 * 1000 / 640 is 468.75."""
    size = {"shortest_edge": 600, "longest_edge": 1000}
    processor = CaptioningImageProcessor.from_dict(CaptioningImageProcessor(size=size, round_edges=True).to_dict())
    assert processor(noise(height, width, 0), return_tensors="np").pixel_values.shape[2:] == expected


@settings(max_examples=40, deadline=None)
@example([(8, 16)], 8, 15)
@example([(31, 9), (16, 8)], 8, 17)
@given(
    st.lists(st.tuples(st.integers(8, 90), st.integers(8, 90)), min_size=1, max_size=4),
    st.integers(8, 40),
    st.integers(8, 80),
)
def test_edges_keep_the_aspect_ratio_and_padding_is_right_and_below(sizes, shortest, longest):
    longest = max(shortest, longest)
    processor = CaptioningImageProcessor(size={"shortest_edge": shortest, "longest_edge": longest})
    images = [noise(*size, seed) for seed, size in enumerate(sizes)]
    batch = processor(images, return_tensors="np")
    alone = [processor(image, return_tensors="np") for image in images]
    assert all(set(item) == {"pixel_values"} for item in alone)
    shapes = [item.pixel_values.shape[2:] for item in alone]
    assert batch.pixel_values.shape[2:] == tuple(np.max(shapes, axis=0))
    assert ("pixel_mask" in batch) == (len(set(shapes)) > 1)
    for index, ((height, width), (rows, columns), item) in enumerate(zip(shapes, sizes, alone, strict=True)):
        (short, long), ratio = sorted((height, width)), max(rows, columns) / min(rows, columns)
        assert long <= longest
        assert short == shortest or longest - long <= 1 + ratio
        assert (height - width) * (rows - columns) >= 0
        assert abs(long - short * ratio) <= 1 + ratio  # whole pixels
        np.testing.assert_array_equal(batch.pixel_values[index, :, :height, :width], item.pixel_values[0])
        assert not batch.pixel_values[index, :, height:].any() and not batch.pixel_values[index, :, :, width:].any()
        if "pixel_mask" in batch:
            assert batch.pixel_mask.dtype == np.int64
            assert batch.pixel_mask[index].sum() == batch.pixel_mask[index, :height, :width].sum() == height * width


if is_available():
    suite = import_suite("test_image_processing_common")

    class ImagesBySize(suite.ImageProcessingTester):
        def __init__(self, parent, **kwargs):
            kwargs.setdefault("size", {"height": 18, "width": 20})
            super().__init__(parent, **kwargs)

        def _get_image_processing_classes(self):
            return {"pil": CaptioningImageProcessor}

    class CaptioningImageProcessorTest(suite.ImageProcessingTestMixin, unittest.TestCase):
        image_processor_tester_class = ImagesBySize
        test_cast_dtype = True

        def test_new_models_require_torchvision_backend(self):
            self.skipTest("the package works with Pillow alone")

        def test_image_processor_save_load_with_autoimageprocessor(self):
            self.skipTest("AutoImageProcessor is tested with the models, whose configurations it is registered for")
