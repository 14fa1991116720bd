"""Graphs in a model's folder, with which commands run in a process without torch."""

import json
from pathlib import Path

import numpy as np
import pytest
from datasets import load_from_disk
from matplotlib.cbook import get_sample_data
from PIL import Image

pytest.importorskip("onnxruntime", reason="the extra photos is not installed")

from hf_ngsan.cli import main, parse
from hf_ngsan.commands import caption as caption_command
from hf_ngsan.exporting import UnexportableError, onnx_folder
from hf_ngsan.exporting import folder as writer
from hf_ngsan.exporting.onnx_folder import (
    FOLDER,
    WEIGHTS,
    copy_graphs,
    is_current,
    open_captioner,
    open_text_graph,
    record_sources,
    remove_old_graphs,
)
from hf_ngsan.io.files import sha256
from hf_ngsan.io.packaged import CAPTIONER, DUAL_ENCODER, packaged_models
from hf_ngsan.loading import calibration
from hf_ngsan.loading.models import load_model, save_model
from hf_ngsan.loading.provenance import model_fingerprint
from hf_ngsan.retrieval import IndexDescription, IndexFolder
from hf_ngsan.sharing import write_checkpoint
from hf_ngsan.tasks.retrieval_search import embed_images, embed_texts
from tests.commands.running import fails, heavy_imports, prints
from tests.exporting.eager import use_eager_graphs
from tests.models.mhsan import tiny as mhsan
from tests.models.tiny_photos import photo, pixel_captioner, pixel_processor

PHOTOGRAPH = get_sample_data("grace_hopper.jpg", asfileobj=False)
TEXTS = ["a man in a black hat", "Two dogs, running!", "a " * 600]


def test_packaged_models_have_current_graphs():
    for name in (CAPTIONER, DUAL_ENCODER):  # captioners of photographs; the others read regions of scenes
        assert is_current(packaged_models()[name], []), f"hf-ngsan export --model {name} makes new ones"


@pytest.fixture(scope="module")
def dual_encoder():
    return load_model(DUAL_ENCODER, "retrieval")


def test_the_graph_of_texts_embeds_them_as_the_model_does(dual_encoder):
    graph = open_text_graph(str(packaged_models()[DUAL_ENCODER]))
    assert graph.fingerprint == model_fingerprint(*dual_encoder)
    actual = np.concatenate([graph.embed(text) for text in TEXTS])
    assert actual == pytest.approx(np.concatenate([embed_texts(*dual_encoder, [text]) for text in TEXTS]), abs=1e-5)
    assert graph.embed("") is None


def test_commands_answer_without_torch(dual_encoder, tmp_path, capsys):
    """Gives the words, the hits and, up to rounding, the numbers of PyTorch."""
    folder = tmp_path / "photos"
    folder.mkdir()
    photo((300, 200)).save(folder / "photo.png")
    random = np.random.default_rng(0).standard_normal((5, 512)).astype(np.float32)
    description = IndexDescription(DUAL_ENCODER, model_fingerprint(*dual_encoder), "photos", "0", 512, 5, 5)
    IndexFolder.begin(tmp_path / "index", description).write_shard(0, list("abcde"), random, captions=[["it"]] * 5)
    commands = [
        ["caption", PHOTOGRAPH],
        ["caption", str(folder), PHOTOGRAPH, "missing.jpg", "--skip-errors", "--num-beams", "2"],
        ["caption", PHOTOGRAPH, "--json", "--max-new-tokens", "5"],
        ["search", str(tmp_path / "index"), "a man in a hat", "--top-k", "3"],
        ["caption", "missing.jpg"],
        ["search", str(tmp_path / "index"), "--image", PHOTOGRAPH, "--top-k", "3"],
        ["caption", PHOTOGRAPH, "--json", "--scores"],
    ]
    ends = [heavy_imports(tmp_path, *arguments) for arguments in commands]
    assert not set.union(*(heavy for heavy, _ in ends))
    assert [done.returncode for _, done in ends] == [0] * 4 + [2, 0, 0]
    for arguments in [*commands[:3], commands[-1]]:
        assert main([*arguments, "--engine", "torch"]) == 0
    model, processor = dual_encoder
    expected = capsys.readouterr().out.splitlines()
    lines = "".join(done.stdout for _, done in ends).splitlines()
    judged, expected_judged = json.loads(lines.pop()), json.loads(expected.pop())
    assert judged["confidence"] == pytest.approx(expected_judged["confidence"], abs=1e-4)
    assert judged["unlike_training"] is expected_judged["unlike_training"]
    actual, target = json.loads(lines.pop(4)), json.loads(expected.pop(4))
    assert lines[:4] == expected and (actual["caption"], actual["image"]) == (target["caption"], target["image"])
    assert actual["score"] == pytest.approx(target["score"], abs=1e-4)
    assert [word for word, _ in actual["words"]] == [word for word, _ in target["words"]]
    assert [item for _, item in actual["words"]] == pytest.approx([item for _, item in target["words"]], abs=1e-3)
    [text] = embed_texts(model, processor, ["a man in a hat"])
    [image] = embed_images(model, processor, [{"image": PHOTOGRAPH}])
    for query, hits in ((text, lines[4:7]), (image, lines[7:])):
        scores = random.astype(np.float16).astype(np.float32) @ query
        best = np.argsort(-scores)[:3]
        assert [line.split("\t")[1:] for line in hits] == [["abcde"[place], "it"] for place in best]
        assert [float(line.split("\t")[0]) for line in hits] == pytest.approx(scores[best], abs=1e-4)


def test_a_caption_with_graphs_computes_the_checksum_of_each_model_once(monkeypatch):
    files = []
    for module in (calibration, onnx_folder):
        monkeypatch.setattr(module, "sha256", lambda file: files.append(file.parent.name + file.suffix) or sha256(file))
    assert main(["caption", PHOTOGRAPH]) == 0
    assert [files.count(f"{name}.safetensors") for name in (CAPTIONER, DUAL_ENCODER)] == [1, 1]


def test_an_index_and_features_are_those_of_pytorch(tmp_path):
    folder = tmp_path / "photos"
    folder.mkdir()
    photo((300, 200)).save(folder / "photo1.png")
    photo((90, 120)).convert("RGBA").save(folder / "photo2.webp", lossless=True)
    Image.open(PHOTOGRAPH).save(folder / "photo3.jpg", quality=95)
    (folder / "photo4.jpg").write_bytes(b"damaged")
    work = {"index": ["--model", DUAL_ENCODER], "extract": ["--backbone", CAPTIONER, "--dtype", "float32"]}
    for name, options in work.items():
        command = [name, "--images", str(folder), *options, "--skip-errors", "--output"]
        heavy, done = heavy_imports(tmp_path, *command, f"{name}-quick")
        assert done.returncode == 0 and not heavy & {"torch", "transformers", "accelerate"}, done.stderr[-1000:]
        assert main([*command, str(tmp_path / f"{name}-torch"), "--engine", "torch", "--num-workers", "0"]) == 0
    quick, usual = (IndexFolder.open(tmp_path / f"index-{end}") for end in ("quick", "torch"))
    assert quick.description == usual.description
    assert quick.items() == usual.items()
    for file in ("items.json", "thumbnails.zip"):
        assert quick.shard(0).folder.joinpath(file).read_bytes() == usual.shard(0).folder.joinpath(file).read_bytes()
    assert quick.embeddings()[0] == pytest.approx(usual.embeddings()[0].astype(np.float32), abs=1e-4)
    quick, usual = (tmp_path / f"extract-{end}" for end in ("quick", "torch"))
    names = [sorted(str(file.relative_to(item)) for file in item.rglob("*")) for item in (quick, usual)]
    assert names[0] == names[1]
    for file in ("extraction.json", "skipped.json", "dataset_info.json"):
        assert (quick / file).read_text() == (usual / file).read_text(), file
    rows = [load_from_disk(str(item)).with_format("numpy")[:] for item in (quick, usual)]
    actual, target = (item.pop("visual_features") for item in rows)
    assert np.abs(actual - target).mean() < 1e-4
    np.testing.assert_allclose(actual, target, rtol=2**-10, atol=1e-4)  # it rounds its features to half precision
    np.testing.assert_equal(*rows)


def test_options_that_need_more_take_pytorch(monkeypatch):
    monkeypatch.setattr("hf_ngsan.exporting.onnx_folder.open_captioner", lambda name: "graphs")
    monkeypatch.setattr("hf_ngsan.tasks.captioning_files.caption_files", lambda *arguments, **options: ["captions"])
    rows = {
        "": True,
        "--num-beams 2 --json --output captions.jsonl --skip-errors --limit 1 --batch-size 2": True,
        "--max-new-tokens 3 --debug": True,
        "--engine torch": False,
        "--engine onnx": True,
        "--scores": True,
        "--generate length_penalty=0": False,
        "--text a": False,
        "--save-attention maps": False,
    }
    for row, is_quick in rows.items():
        options = parse(["caption", PHOTOGRAPH, *row.split()])
        options.modules = []
        actual = caption_command.captioned_by_graphs(options, [CAPTIONER], [PHOTOGRAPH])
        assert (actual == ["captions"]) is is_quick, row
    assert caption_command.captioned_by_graphs(options, [CAPTIONER], []) is None
    options = parse(["caption", PHOTOGRAPH])
    options.modules = ["somebody's"]
    assert caption_command.captioned_by_graphs(options, [CAPTIONER], [PHOTOGRAPH]) is None


def model_with_graphs(folder: Path) -> Path:
    """Writes files with the names of a model's files and of its graphs."""
    (folder / FOLDER).mkdir(parents=True)
    for name in ("config.json", "model.safetensors", f"{FOLDER}/encoder.onnx", f"{FOLDER}/decoder.onnx"):
        (folder / name).write_text(name)
    record_sources(folder, folder / FOLDER, ["matplotlib:__init__.py"])
    return folder


def name_outside(folder):
    file = folder / FOLDER / "made_from.json"
    recorded = json.loads(file.read_text())
    file.write_text(json.dumps({**recorded, f"../{folder.name}/config.json": recorded["config.json"]}))


def test_graphs_count_as_long_as_nothing_has_changed(tmp_path):
    changes = {
        "weights": lambda folder: (folder / "model.safetensors").write_text("others"),
        "no configuration": lambda folder: (folder / "config.json").unlink(),
        "new settings": lambda folder: (folder / "generation_config.json").write_text("{}"),
        "a damaged graph": lambda folder: (folder / FOLDER / "encoder.onnx").write_text("encoder"),
        "a file outside": name_outside,
        "a damaged record": lambda folder: (folder / FOLDER / "made_from.json").write_text("["),
        "no file of a package": lambda folder: record_sources(folder, folder / FOLDER, ["matplotlib:gone"]),
    }
    for name, change in changes.items():
        folder = model_with_graphs(tmp_path / name)
        (folder / "README.md").write_text("about it")
        assert is_current(folder, ["encoder.onnx"]) and not is_current(folder, ["text.onnx"]), name
        assert open_captioner(str(folder)) is None  # its graph files are not graphs
        try:
            change(folder)
        except FileNotFoundError:
            continue
        assert not is_current(folder, []), name
        assert open_captioner(str(folder)) is open_text_graph(str(folder)) is None


def test_graphs_go_with_their_model_alone(tmp_path):
    first, same, other, saved = (tmp_path / name for name in ("first", "same", "other", "saved"))
    model_with_graphs(first)
    (first / FOLDER / "private.txt").touch()
    for folder in (same, other, saved):
        folder.mkdir()
        (folder / "config.json").write_text("{}")
    copy_graphs(first, same)
    (first / FOLDER / WEIGHTS).write_text("{}")
    record_sources(first, first / FOLDER)
    (saved / "model.safetensors").write_text("the same weights in another type")
    copy_graphs(first, saved)
    assert not (saved / FOLDER).exists()
    (saved / "model.safetensors").write_text((first / "model.safetensors").read_text())
    copy_graphs(first, saved)
    assert is_current(saved, ["encoder.onnx"]) and (saved / FOLDER / WEIGHTS).exists()
    assert is_current(same, ["encoder.onnx"]) and not (same / FOLDER / "private.txt").exists()
    remove_old_graphs(same)
    (same / "config.json").write_text("{ }")
    copy_graphs(same, other)
    remove_old_graphs(same)
    assert not (same / FOLDER).exists() and not (other / FOLDER).exists() and (first / FOLDER).exists()


def test_an_export_into_the_folder_of_a_captioner(tmp_path, capsys, monkeypatch):
    use_eager_graphs(monkeypatch)
    folder, model, processor = tmp_path / "model", pixel_captioner(), pixel_processor()
    model.save_pretrained(folder)
    processor.save_pretrained(folder)
    photo((40, 30)).save(tmp_path / "photo.png")
    fails(capsys, "export", "--model", folder, "--check")
    prints(capsys, "export", "--model", folder)
    inputs = processor(images=[tmp_path / "photo.png"])
    printed = processor.batch_decode(model.generate(**inputs), skip_special_tokens=True)
    assert open_captioner(str(folder)).caption([tmp_path / "photo.png"]) == printed
    shown = prints(capsys, "caption", "--model", folder, tmp_path / "photo.png")
    assert shown.split("\t")[1].strip() == printed[0].strip()
    write_checkpoint(*load_model(folder), tmp_path / "pushed", "user/name", source=folder)
    assert open_captioner(str(tmp_path / "pushed")) is not None
    write_checkpoint(*load_model(folder), tmp_path / "changed", "user/name")
    assert not (tmp_path / "changed" / FOLDER).exists()


def test_an_export_into_the_folder_of_a_dual_encoder(tmp_path, capsys, monkeypatch):
    """One text encoder takes texts of any length; the steps of the other depend on the length."""
    use_eager_graphs(monkeypatch)
    model, processor = mhsan.tiny_model(vision_config=mhsan.VISION), mhsan.tiny_processor(pixels=True)
    save_model(model, processor, tmp_path)
    assert "/onnx" in prints(capsys, "export", "--model", tmp_path)
    shorter, write = open_text_graph(str(tmp_path)), writer.write_graph
    assert shorter.fingerprint == model_fingerprint(model, processor)

    def refuse_lengths(*arguments):
        if len(arguments[-1]) > 1:
            raise UnexportableError("It runs word by word.")
        write(*arguments)

    monkeypatch.setattr(writer, "write_graph", refuse_lengths)
    prints(capsys, "export", "--model", tmp_path)
    padded = open_text_graph(str(tmp_path))
    assert padded.settings["fixed_length"] and not shorter.settings["fixed_length"]
    for text in ("a red ball", "two dogs near the red box"):
        expected = embed_texts(model, processor, [text])
        assert shorter.embed(text) == pytest.approx(expected, abs=1e-5)
        assert padded.embed(text) == pytest.approx(expected, abs=1e-5)
