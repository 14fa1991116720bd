"""Exported files run by their runtimes, in processes that have no torch where the runtime is another."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from hf_ngsan.commands import export
from hf_ngsan.exporting import FORMATS, MissingExporterError, check_format, write_exported_captioner
from tests.exporting.test_captioner import LENGTHS, arrays_of, unhurried
from tests.models import tiny
from tests.models.rstnet import tiny as tiny_rstnet
from tests.models.spatial_captioner import tiny as tiny_spatial
from tests.models.tiny_photos import PHOTOS, pixel_processor

GEOMETRY = {"geometric_bias": ["content", "query", "key"], "key_norm": "layer", "num_hidden_layers": 1}
ENCODER = {**tiny_rstnet.TEXT_ENCODER, "num_hidden_layers": 1}
CAPTIONERS = {
    "ngsan": lambda: (tiny.tiny_captioner(seed=9, **GEOMETRY), tiny.random_images(LENGTHS)),
    "rstnet": lambda: (
        tiny_rstnet.tiny_captioner(seed=1, encoder_layers=1, language_model_config={"text_encoder_config": ENCODER}),
        tiny.random_images(LENGTHS),
    ),
    "spatial": lambda: (
        tiny_spatial.tiny_captioner(seed=26, encoder_layers=1, decoder_layers=1),
        tiny_spatial.random_cells(LENGTHS),
    ),
}
"""Of one layer, since tracing takes seconds for each."""

ALONE = """
import json, sys
for name in {missing!r}:
    sys.modules[name] = None
import numpy as np
sys.path.insert(0, {folder!r})
from captioner import Captioner
captioner = Captioner({folder!r}, num_threads=1)
inputs = dict(np.load({inputs!r}))
captions = [captioner.caption(**inputs, num_beams=beams) for beams in (1, 3)]
captions += [captioner.caption(**{{name: array[:1, :1] for name, array in inputs.items()}}, num_beams=2)]
print(json.dumps(captions))
"""


def exported(model, processor, place: Path, format_name: str, int8: bool = False) -> Path:
    try:
        check_format(format_name)
    except MissingExporterError as missing:
        pytest.skip(str(missing))
    place.mkdir()
    write_exported_captioner(model, processor, place, format_name, int8)
    return place


def captions_alone(folder: Path, inputs: dict) -> list[list[str]]:
    """Captions of 1 and 3 beams, and of the first region of the first image, from a process of its own."""
    with_torch = folder.joinpath("encoder.pt2").exists()
    missing = ["hf_ngsan", "transformers", "datasets"] + ([] if with_torch else ["torch"])
    np.savez(folder / "inputs.npz", **arrays_of(inputs))
    code = ALONE.format(missing=missing, folder=str(folder), inputs=str(folder / "inputs.npz"))
    process = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300)
    assert process.returncode == 0, process.stderr
    return json.loads(process.stdout)


def test_the_command_knows_every_format():
    assert set(export.FORMATS) == set(FORMATS)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "format_name"),
    [("ngsan", "onnx"), ("rstnet", "onnx"), ("spatial", "openvino"), ("ngsan", "torch-export")],
)
def test_exported_files_caption_alone(name, format_name, tmp_path):
    model, inputs = CAPTIONERS[name]()
    processor = tiny.tiny_processor()
    folder = exported(unhurried(model), processor, tmp_path / "exported", format_name)
    first = {key: tensor[:1, :1] for key, tensor in inputs.items()}
    wanted = [
        processor.batch_decode(model.generate(**given, num_beams=beams), skip_special_tokens=True)
        for given, beams in ((inputs, 1), (inputs, 3), (first, 2))
    ]
    assert captions_alone(folder, inputs) == wanted
    assert len(set(wanted[1])) > 1
    graphs = [file.read_bytes() for file in folder.iterdir() if file.suffix in (".onnx", ".xml", ".pt2")]
    assert len(graphs) == 2
    assert not any(str(Path(export.__file__).parents[2]).encode() in content for content in graphs)


@pytest.mark.slow
def test_a_captioner_of_images_is_a_program(tmp_path):
    backbone = {"model_type": "ngsan_vgg", "hidden_sizes": [6, 12], "depths": [1, 1]}
    vision = {"backbone_config": backbone, "grid_size": [3, 4]}
    model, processor = tiny.tiny_captioner(seed=29, num_hidden_layers=1, vision_config=vision), pixel_processor()
    folder = exported(model, processor, tmp_path / "exported", "onnx")
    wanted = processor.batch_decode(model.generate(**processor(images=PHOTOS), num_beams=3), skip_special_tokens=True)
    assert len(set(wanted)) > 1
    names = [str(tmp_path / f"{index}.png") for index in range(len(PHOTOS))]
    for name, photo in zip(names, PHOTOS, strict=True):
        photo.save(name)
    command = [sys.executable, "-I", str(folder / "captioner.py"), *names, "--num-beams", "3", "--batch-size", "2"]
    process = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert process.returncode == 0, process.stderr
    assert process.stdout == "".join(f"{name}\t{caption}\n" for name, caption in zip(names, wanted, strict=True))
