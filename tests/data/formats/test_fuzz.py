"""Every reader gives a result or one sentence for damaged files, within bounds of time and memory.

`HF_NGSAN_FUZZ_SEED=7 pytest -m slow tests/data/formats/test_fuzz.py` tries others.
"""

import os
import random
import resource
import shutil
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest

from hf_ngsan.cli import main
from tests.data.formats.files import (
    VIDEOS,
    write_cocobu,
    write_grid_hdf5,
    write_m2,
    write_maps,
    write_pth,
    write_tsv,
    write_vatex,
    write_vqa,
)
from tests.data.formats.test_annotations import write_coco, write_json, write_karpathy
from tests.data.formats.test_image_formats import tar_of, write_parquet
from tests.data.test_annotation_tables import answer, question
from tests.fuzz.mutations import damage, mutate_json

CASES = 10
SECONDS = 20
BYTES = 2 * 2**30
FORMATS: dict[str, Callable[[Path], object]] = {
    "bottom-up-tsv": lambda folder: write_tsv(folder / "regions.tsv"),
    "m2-hdf5": lambda folder: write_m2(folder / "regions.hdf5"),
    "grid-hdf5": lambda folder: write_grid_hdf5(folder / "grids.hdf5"),
    "cocobu": lambda folder: write_cocobu(folder / "cocobu"),
    "vqa-npz": lambda folder: write_vqa(folder / "val2014"),
    "grid-pth": lambda folder: write_pth(folder / "maps"),
    "grid-npy": lambda folder: write_maps(folder / "maps"),
    "vatex": lambda folder: write_vatex(folder / "val"),
    "webdataset": lambda folder: tar_of(folder / "000.tar"),
    "parquet": lambda folder: write_parquet(folder / "photos.parquet"),
    "karpathy": lambda folder: write_karpathy(folder / "split.json"),
    "coco": lambda folder: write_coco(folder / "captions.json"),
    "vatex-captions": lambda folder: write_json(
        folder / "captions.json", [{"videoID": video, "enCap": ["a", "b"]} for video in VIDEOS]
    ),
    "questions": lambda folder: write_json(folder / "questions.json", {"questions": [question(10), question(11)]}),
    "answers": lambda folder: write_json(folder / "answers.json", {"annotations": [answer(10), answer(11)]}),
}


def convert_damaged(path: Path, output: Path, draw: random.Random) -> str:
    """Converts and inspects in a child process; returns what is wrong with its end, "" for nothing."""
    log = output.with_name("log")
    options = ["--skip-broken"] if draw.random() < 0.5 else []
    child = os.fork()
    if child == 0:
        code = 70
        try:
            written = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(written, 1)
            os.dup2(written, 2)
            used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            resource.setrlimit(resource.RLIMIT_AS, (used + BYTES, -1))
            codes = [main(["inspect", str(path)]), main(["convert", str(path), "--output", str(output), *options])]
            code = codes[1] if set(codes) <= {0, 2} else 71
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    text = log.read_text(errors="replace")
    if code not in (0, 2) or "Traceback" in text or "Exception ignored" in text:
        return f"exit code {code}: {text[-1_000:]}"
    return "a folder in spite of an error" if code == 2 and output.exists() else ""


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMATS)
def test_damaged_files_end_with_a_result_or_one_sentence(name, tmp_path):
    if "hdf5" in name:
        pytest.importorskip("h5py")
    (tmp_path / "intact").mkdir()
    FORMATS[name](tmp_path / "intact")
    seed = os.environ.get("HF_NGSAN_FUZZ_SEED", "1")
    wrong = {}
    for case in range(CASES):
        draw, place = random.Random(f"{seed} {name} {case}"), tmp_path / str(case)
        shutil.copytree(tmp_path / "intact", place)
        file = draw.choice(sorted(file for file in place.rglob("*") if file.is_file()))
        change = mutate_json if file.suffix == ".json" else damage
        change(draw, file, [str(tmp_path / "absent"), "/dev/zero", str(tmp_path)])
        fault = convert_damaged(next(place.iterdir(), file), tmp_path / f"{case}-out", draw)
        if fault:
            wrong[case] = fault
        shutil.rmtree(place)
    assert wrong == {}
