"""`hf-ngsan caption`: a line for each image of files, folders and datasets, with the same options for all."""

import json
from pathlib import Path

import pytest
import torch
from datasets import Dataset, DatasetDict, Features, Value
from datasets import Image as ImageFeature
from PIL import Image

from hf_ngsan.cli import main
from hf_ngsan.data import load_data
from hf_ngsan.data.vocabulary import with_words
from hf_ngsan.loading.pipelines import CaptioningPipeline
from tests.models.mhsan import tiny as mhsan
from tests.models.tiny_photos import PHOTOS, pixel_captioner, pixel_processor
from tests.tasks.tiny import DATA

from .running import fails, prints

SPEC = DATA["spec"]


@pytest.fixture
def photo_data(tmp_path: Path) -> str:
    """A dataset of the photos, as a folder of `save_to_disk` that `images:` reads."""
    rows = {"image_id": list(range(5)), "image": PHOTOS, "caption": ["a red circle"] * 5}
    features = Features({"image_id": Value("int64"), "image": ImageFeature(), "caption": Value("string")})
    DatasetDict(test=Dataset.from_dict(rows, features=features)).save_to_disk(tmp_path / "data")
    return f"images:{tmp_path / 'data'}"


def captions(capsys, *arguments) -> list[list[str]]:
    """Runs `caption`; returns the lines that it prints, cut at the tab."""
    return [line.split("\t") for line in prints(capsys, "caption", *arguments).splitlines()]


def test_files_are_captioned_in_their_order(capsys, captioner, photographs):
    expected = []
    pixels, processor = pixel_captioner(), pixel_processor()
    for photo in PHOTOS:
        ids = pixels.generate(**processor(images=photo), num_beams=2)
        expected += processor.batch_decode(ids, skip_special_tokens=True)
    for options in ([], ["--batch-size", 2]):
        actual = captions(capsys, "--model", captioner, *photographs, "--num-beams", 2, *options)
        assert actual == [[str(path), caption.strip()] for path, caption in zip(photographs, expected, strict=True)]
    assert len(set(expected)) > 2
    few = captions(capsys, "--model", captioner, "--limit", 2, *photographs)
    assert few == captions(capsys, "--model", captioner, *photographs[:2])


def test_a_dual_encoder_chooses_among_the_beams(
    capsys, dual_encoder, captioner, scene_captioner, photographs, photo_data, tmp_path
):
    scorer, texts = mhsan.tiny_model(vision_config=mhsan.VISION), mhsan.tiny_processor(pixels=True)
    pixels, processor = pixel_captioner(), pixel_processor()
    expected, first = [], []
    for photo in PHOTOS:
        searched = {"num_beams": 3, "num_return_sequences": 3, "return_dict_in_generate": True, "output_scores": True}
        searched["max_new_tokens"] = 8
        actual = pixels.generate(**processor(images=photo), **searched)
        beams = [beam.strip() for beam in processor.batch_decode(actual.sequences, skip_special_tokens=True)]
        with torch.no_grad():
            output = scorer(**texts(images=photo, text=with_words(texts.tokenizer, beams)))
        similarities = torch.cosine_similarity(output.text_embeds, output.image_embeds)
        expected.append(beams[int((actual.sequences_scores + 2 * similarities).argmax())])
        first.append(beams[0])
    options = ["--model", captioner, "--num-beams", 3, "--rerank-with", dual_encoder, "--max-new-tokens", 8]
    (tmp_path / "broken.png").write_bytes(b"no image")
    files = [tmp_path / "broken.png", *photographs]
    assert [caption for _, caption in captions(capsys, *options, *files, "--skip-errors")] == ["", *expected]
    assert [caption for _, caption in captions(capsys, *options, "--data", photo_data)] == expected
    assert expected != first
    assert captions(capsys, *options, photographs[0], "--num-beams", 2)
    assert "--num-beams" in fails(capsys, "caption", *options, photographs[0], "--num-beams", 1)
    assert "mhsan" in fails(capsys, "caption", *options[:4], "--rerank-with", scene_captioner, photographs[0])


def test_a_folder_stands_for_all_images_in_it(capsys, captioner, tmp_path):
    within = tmp_path / "album" / "within"
    within.mkdir(parents=True)
    files = [tmp_path / "album" / "b.png", within / "a.jpeg", tmp_path / "album" / "z.png"]
    for file, photo in zip(files, PHOTOS, strict=False):
        photo.save(file)
    (within / "notes.txt").write_text("no image")
    PHOTOS[3].save(tmp_path / "single.png")
    expected = captions(capsys, "--model", captioner, *files, tmp_path / "single.png")
    assert captions(capsys, "--model", captioner, tmp_path / "album", tmp_path / "single.png") == expected
    (tmp_path / "empty").mkdir()
    assert str(tmp_path / "empty") in fails(capsys, "caption", "--model", captioner, tmp_path / "empty")


def test_a_dataset_of_images_gets_the_captions_of_its_files(capsys, captioner, photographs, photo_data):
    from_files = captions(capsys, "--model", captioner, *photographs)
    from_data = captions(capsys, "--model", captioner, "--data", photo_data)
    assert from_data == [[str(number), caption] for number, (_, caption) in enumerate(from_files)]
    begun = captions(capsys, "--model", captioner, "--data", photo_data, "--text", "a red", "--max-new-tokens", 3)
    assert begun == [
        [str(number), caption]
        for number, (_, caption) in enumerate(
            captions(capsys, "--model", captioner, *photographs, "--text", "a red", "--max-new-tokens", 3)
        )
    ]
    assert all(caption.startswith("a red") for _, caption in begun)
    assert {len(caption.split()) for _, caption in begun} <= {2, 3, 4, 5}


def test_a_dataset_of_features_gets_the_captions_of_its_evaluation(run, tmp_path, capsys):
    output = tmp_path / "captions.json"
    for options in (["--num-beams", 2], ["--max-new-tokens", 3], ["--batch-size", 4, "--limit", 5]):
        prints(capsys, "evaluate", "--model", run, "--data", SPEC, "--output", output, *options)
        evaluated = [[str(result["image_id"]), result["caption"]] for result in json.loads(output.read_text())]
        assert captions(capsys, "--model", run, "--data", SPEC, *options) == evaluated
    assert len(evaluated) == 5
    begun = captions(capsys, "--model", run, "--data", SPEC, "--text", "the red")
    assert [image_id for image_id, _ in begun] == [str(image_id) for image_id in load_data(SPEC, "test")["image_id"]]
    assert all(caption.startswith("the red") for _, caption in begun)


def test_attention_goes_into_a_folder(capsys, captioner, scene_captioner, photographs, photo_data, tmp_path):
    plain = captions(capsys, "--model", captioner, *photographs[:2])
    assert captions(capsys, "--model", captioner, *photographs[:2], "--save-attention", tmp_path / "new/maps") == plain
    assert sorted(path.stem for path in (tmp_path / "new/maps").iterdir()) == [path.stem for path in photographs[:2]]
    maps = ["--save-attention", tmp_path / "maps"]
    record = json.loads(prints(capsys, "caption", "--model", captioner, photographs[0], *maps, "--json"))
    assert record["attention"] == str(tmp_path / "maps/photo0.png")
    with Image.open(tmp_path / "new/maps/photo0.png") as figure:
        assert min(figure.size) > 100
    captions(capsys, "--model", captioner, "--data", photo_data, "--limit", 1, "--save-attention", tmp_path / "ids")
    assert [path.stem for path in (tmp_path / "ids").iterdir()] == ["0"]
    scenes = "scenes:size=3,test=1,seed=3,images=true,image_size=48"
    actual = captions(capsys, "--model", scene_captioner, "--data", scenes, "--save-attention", tmp_path / "regions")
    assert sorted(path.stem for path in (tmp_path / "regions").iterdir()) == sorted(image_id for image_id, _ in actual)


def test_beginnings_that_no_caption_can_have(capsys, captioner, photographs):
    command = ["caption", "--model", str(captioner), str(photographs[0]), "--text", "a zebra"]
    assert "'zebra'" in fails(capsys, *command)
    assert main([*command, "--skip-errors"]) == 2 and "'zebra'" in capsys.readouterr().err


def test_what_does_not_go_together(capsys, captioner, scene_captioner, photographs, photo_data):
    assert "--data" in fails(capsys, "caption", "--model", captioner)
    assert "not both" in fails(capsys, "caption", "--model", captioner, "--data", "scenes", photographs[0])
    for images in ([photographs[0]], ["--data", photo_data]):
        message = fails(capsys, "caption", "--model", scene_captioner, *images)
        assert "hf-ngsan attach-vision" in message and "str" not in message.split()
    assert "photo0.png" in fails(
        capsys, "caption", "--model", captioner, photographs[0], "--save-attention", photographs[0]
    )
    assert "dimension" in fails(capsys, "caption", "--model", captioner, "--data", SPEC)


def groups_of(number: int, *others: object) -> list[object]:
    return ["--generate", f"num_beam_groups={number}", f"num_return_sequences={number}", *others]


def test_searches(capsys, captioner, photographs, tmp_path):
    first = ["--model", captioner, photographs[0], "--max-new-tokens", 6]
    [[_, caption]] = captions(capsys, *first, "--num-beams", 3, "--generate", "required_words=ring,two")
    assert {"ring", "two"} <= set(caption.split())
    words = ["--generate", "required_words=[ring, [two, a]]", "num_beams=3"]
    assert {"ring"} <= set(captions(capsys, *first, *words)[0][1].split())
    [[_, other]] = captions(capsys, *first, "--generate", f"forbidden_words={caption.split()[0]}")
    assert caption.split()[0] not in other.split()
    command = ["caption", *map(str, first), str(tmp_path / "broken.png"), "--num-beams", "2", *groups_of(2)]
    (tmp_path / "broken.png").write_bytes(b"no image")
    assert main([*command, "--skip-errors"]) == 0
    assert "1 of 2 images" in capsys.readouterr().err


def test_arguments_of_generation_that_cannot_be(capsys, captioner, photographs):
    rows = {
        "num_beans=3": "num_beams",  # the nearest name
        "length_penalty=long": "length_penalty",
        "length_penalty=2": "length_penalty",  # with one beam
        "top_k=5": "do_sample",
        "num_return_sequences=3 num_beams=2": "num_return_sequences",
        "required_words=zebra": "'zebra'",
        "penalty_alpha=0.5": "penalty_alpha",
    }
    for row, fact in rows.items():
        arguments = ["caption", "--model", captioner, photographs[0], "--generate", *row.split()]
        assert fact in fails(capsys, *arguments), row
    command = ["caption", "--model", str(captioner), "--generate", "num_beams=3", str(photographs[0])]
    with pytest.raises(SystemExit) as exit_:
        main(command)
    assert exit_.value.code == 2 and "KEY=VALUE" in capsys.readouterr().err
    evaluate = ["evaluate", "--model", captioner, "--data", "scenes:size=6,test=6,images=true,image_size=32"]
    several = ["--num-beams", 3, "--generate", "num_return_sequences=3"]
    assert "num_return_sequences" in fails(capsys, *evaluate, *several)


def test_captions_are_printed_or_written_with_scores(captioner, photographs, tmp_path, capsys):
    files = photographs[:2]
    (tmp_path / "broken.png").write_bytes(b"nothing")
    command = ["caption", "--model", captioner, *files, tmp_path / "broken.png", "--skip-errors"]
    plain = dict(line.split("\t") for line in prints(capsys, *command).splitlines())
    assert main([*map(str, command), "--scores"]) == 0
    output, errors = capsys.readouterr()
    assert [len(line.split("\t")) for line in output.splitlines()] == [3, 3, 2] and "calibrate" in errors
    records = [json.loads(line) for line in prints(capsys, *command, "--json").splitlines()]
    pipeline = CaptioningPipeline(model=pixel_captioner(), processor=pixel_processor())
    for record, file in zip(records, files, strict=False):
        [expected] = pipeline(str(file), return_scores=True)
        assert record["image"] == str(file) and record["caption"] == plain[str(file)]
        assert record["score"] == pytest.approx(expected["score"], abs=1e-5)
        assert [word for word, _ in record["words"]] == record["caption"].split()
    assert records[2].keys() == {"image", "error"}
    assert prints(capsys, *command, "--json", "--output", tmp_path / "captions.jsonl") == ""
    written = (tmp_path / "captions.jsonl").read_text().splitlines()
    assert [json.loads(line)["image"] for line in written] == [record["image"] for record in records]
    fails(capsys, *command[:-1], "--output", tmp_path / "lines.txt")  # stops at the broken image
    assert not (tmp_path / "lines.txt").exists()
