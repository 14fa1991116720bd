"""Every kind of image becomes an upright RGB image; anything else is an error of one sentence that names it."""

import base64
import io
import subprocess
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from hf_ngsan.models.image_processing_captioning import ImageError, load_image, load_images
from tests.data.images.photos import encoded
from tests.tables import each_row

HEIGHT, WIDTH = 12, 20


@pytest.fixture(autouse=True)
def no_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", ResourceWarning)  # of objects of other tests, which are collected now
        yield


def photo() -> Image.Image:
    """Four quarters of different colours, so that every rotation or reflection is detected."""
    pixels = np.zeros((HEIGHT, WIDTH, 3), dtype=np.uint8)
    pixels[: HEIGHT // 2, : WIDTH // 2] = (250, 10, 20)
    pixels[: HEIGHT // 2, WIDTH // 2 :] = (10, 240, 30)
    pixels[HEIGHT // 2 :, : WIDTH // 2] = (20, 30, 230)
    pixels[HEIGHT // 2 :, WIDTH // 2 :] = (220, 210, 200)
    return Image.fromarray(pixels)


def pixels_of(source, **options) -> np.ndarray:
    image = load_image(source, **options)
    assert image.mode == "RGB"
    return np.asarray(image)


PIXELS = np.asarray(photo())


def test_every_source_of_the_same_image(tmp_path, monkeypatch):
    path = tmp_path / "photo.png"
    path.write_bytes(encoded(photo()))
    monkeypatch.chdir(tmp_path)
    data = path.read_bytes()
    sources = {
        **{"image": photo(), "path": path, "text": str(path), "relative": "photo.png", "bytes": data},
        **{"bytearray": bytearray(data), "view": memoryview(data), "open bytes": io.BytesIO(data)},
        "data URL": "data:image/png;base64," + base64.b64encode(data).decode(),
        "datasets, bytes": {"bytes": data, "path": "gone.png"},
        **{"datasets, path": {"bytes": None, "path": str(path)}, "array": PIXELS},
        "channels first": np.moveaxis(PIXELS, -1, 0),
        "tensor": torch.from_numpy(np.moveaxis(PIXELS, -1, 0).copy()),
        **{"int64": PIXELS.astype(np.int64), "floats": PIXELS / 255, "float tensor": torch.from_numpy(PIXELS / 255)},
        "uint16": PIXELS.astype(np.uint16) * 257,
    }
    with path.open("rb") as file:
        np.testing.assert_array_equal(pixels_of(file), PIXELS)
    for kind, source in sources.items():
        np.testing.assert_array_equal(pixels_of(source), PIXELS, err_msg=kind)


def test_transparency_is_laid_over_white():
    alpha = np.full((HEIGHT, WIDTH), 255, dtype=np.uint8)
    alpha[0] = 0
    alpha[1] = 51  # a fifth
    image = photo()
    image.putalpha(Image.fromarray(alpha))
    expected = PIXELS.astype(float)
    expected[0] = 255
    expected[1] = 0.2 * expected[1] + 0.8 * 255
    for source in (image, encoded(image), np.asarray(image), encoded(image, "WEBP", lossless=True)):
        assert np.abs(pixels_of(source) - expected).max() <= 1
    grey = Image.merge("LA", (photo().convert("L"), Image.fromarray(alpha)))
    assert (pixels_of(encoded(grey))[0] == 255).all()
    keyed = pixels_of(encoded(photo(), transparency=(250, 10, 20)))
    assert (keyed[: HEIGHT // 2, : WIDTH // 2] == 255).all()


def test_16_bits_are_scaled_not_clipped():
    deep = np.linspace(0, 65535, HEIGHT * WIDTH).reshape(HEIGHT, WIDTH).astype(np.uint16)
    expected = np.repeat(np.round(deep / 257).astype(np.uint8)[..., None], 3, axis=-1)
    image = Image.fromarray(deep)
    assert image.mode == "I;16"
    for source in (
        *[image, encoded(image), encoded(image, "TIFF"), deep, Image.fromarray(deep.astype(np.int32)), deep / 65535],
    ):
        np.testing.assert_array_equal(pixels_of(source), expected)
    shallow = np.asarray(photo().convert("L"))
    for kind in (shallow.astype(np.int32), (shallow / 255).astype(np.float32), shallow.astype(np.float32)):
        np.testing.assert_array_equal(pixels_of(Image.fromarray(kind))[..., 0], shallow)
    with pytest.raises(ImageError):
        load_image(Image.new("F", (20, 20), 300))


@each_row("orientation", range(1, 9))
def test_exif_rotation_is_applied(orientation):
    undo = [
        *[None, Image.Transpose.FLIP_LEFT_RIGHT, Image.Transpose.ROTATE_180, Image.Transpose.FLIP_TOP_BOTTOM],
        *[Image.Transpose.TRANSPOSE, Image.Transpose.ROTATE_90, Image.Transpose.TRANSVERSE, Image.Transpose.ROTATE_270],
    ][orientation - 1]
    stored = photo() if undo is None else photo().transpose(undo)
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encoded(stored, "PNG", exif=exif)
    np.testing.assert_array_equal(pixels_of(data), PIXELS)
    np.testing.assert_array_equal(pixels_of(Image.open(io.BytesIO(data))), PIXELS)


@each_row("orientation", [1, 6])
@each_row(("scale", "decoded"), [(1, 1), (2, 1), (3, 1), (4, 2), (7, 2), (8, 4), (40, 8)])
def test_a_large_jpeg_file_is_decoded_at_a_smaller_scale(scale, decoded, orientation):
    least = 24  # twice as many pixels remain on the shorter side
    smooth = photo().resize((3 * least * scale, least * scale), Image.Resampling.BICUBIC)
    stored = smooth.transpose(Image.Transpose.ROTATE_90) if orientation == 6 else smooth
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encoded(stored, "JPEG", exif=exif, quality=95)
    image = load_image(data, least_side=least)
    assert image.size == (smooth.width // decoded, smooth.height // decoded)
    assert image.info.get("full size", image.size) == smooth.size
    usual, reduced = (item.resize((least, least), Image.Resampling.BILINEAR) for item in (load_image(data), image))
    assert np.abs(np.asarray(usual, int) - np.asarray(reduced, int)).mean() < 2
    assert load_image(encoded(stored, "PNG", exif=exif), least_side=least).size == smooth.size


def test_what_is_no_image_is_named(tmp_path):
    jpeg = encoded(Image.effect_noise((64, 64), 90), "JPEG")
    nan = np.full((20, 20, 3), 0.5)
    nan[3, 4] = np.nan
    cases = {
        **{"cut off": jpeg[: len(jpeg) // 2], "nothing": b"", "text": b"a photo of a dog\n"},
        **{"bomb": encoded(Image.new("1", (20000, 20000))), "folder": tmp_path, "missing": tmp_path / "missing.jpg"},
        "a URL in a row": {"bytes": None, "path": "http://localhost:9/photo.jpg"},
        **{"mapping": {"pixels": 3}, "none": None, "NaN": nan, "2 dimensions too many": np.zeros((1, 20, 20, 3))},
        **{"5 channels": torch.zeros(5, 20, 20), "large floats": np.full((20, 20), 200.0)},
        **{"negative": np.full((20, 20), -1), "large": np.full((20, 20), 256)},
    }
    for case, source in cases.items():
        with pytest.raises(ImageError) as caught:
            load_image(source, "image 3")
        text = str(caught.value)
        assert text.startswith("Image 3") and "\n" not in text, case
        if isinstance(source, Path):
            assert str(source) in text, case


def test_formats_that_start_programs_or_are_not_named_are_refused(tmp_path, monkeypatch):
    def refuse(*arguments, **options):
        raise AssertionError(f"{arguments} would be started")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    monkeypatch.setattr(subprocess, "check_call", refuse)
    eps = encoded(photo(), "EPS")
    for name, content in {
        "photo.jpg": eps,
        "photo.png": b"\xc5\xd0\xd3\xc6" + eps,
        "photo.bmp": encoded(photo(), "PCX"),
    }.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(ImageError, match=name):
            load_image(tmp_path / name)


def test_one_image_or_many():
    batch = np.stack([PIXELS, PIXELS[::-1]])
    for images in ([PIXELS, PIXELS[::-1]], batch, torch.from_numpy(batch.copy()), (array for array in batch)):
        assert [np.asarray(image).tolist() for image in load_images(images)] == batch.tolist()
    assert [np.asarray(image).tolist() for image in load_images([[PIXELS], [PIXELS[::-1]]])] == batch.tolist()
    for image in (photo(), PIXELS, encoded(photo()), {"bytes": encoded(photo())}):
        assert len(load_images(image)) == 1
    with pytest.raises(ImageError, match=r"Image 1 .*gone\.jpg"):
        load_images([photo(), "gone.jpg"])
