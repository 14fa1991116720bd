"""`--model A B C`: an ensemble of captioners with one vocabulary, of any architecture."""

import pytest

from hf_ngsan import EnsembleForConditionalGeneration
from hf_ngsan.data import build_tokenizer
from hf_ngsan.loading.models import load_captioner, save_model
from hf_ngsan.models.processing_rstnet import RSTNetProcessor
from hf_ngsan.tasks.caption_rows import load_rows
from hf_ngsan.tasks.captioning_generation import caption_batch
from tests.models.rstnet import tiny as rstnet
from tests.models.tiny import tiny_tokenizer
from tests.tasks.tiny import DATA

from .running import fails, prints

SPEC = DATA["spec"]


@pytest.fixture(scope="module")
def folders(scene_captioner, tmp_path_factory) -> list[str]:
    """An NG-SAN and an RSTNet of the regions of scenes."""
    root = tmp_path_factory.mktemp("members")
    captioner = rstnet.tiny_captioner(visual_feature_size=10)
    save_model(captioner, RSTNetProcessor(tokenizer=tiny_tokenizer()), root / "rstnet")
    return [str(scene_captioner), str(root / "rstnet")]


FEW_WORDS = ["--max-new-tokens", 5]


def together(folders, num_beams: int) -> list[str]:
    loaded = [load_captioner(folder) for folder in folders]
    ensemble = EnsembleForConditionalGeneration([model for model, _ in loaded])
    rows = list(load_rows(SPEC, "test"))
    return caption_batch(ensemble, loaded[0][1], rows, num_beams=num_beams, max_new_tokens=5)


def test_caption_asks_all_of_them(folders, capsys):
    lines = prints(capsys, "caption", "--model", *folders, "--data", SPEC, "--num-beams", 2, *FEW_WORDS).splitlines()
    assert [line.split("\t")[1] for line in lines] == together(folders, 2)


def test_captioners_that_do_not_go_together(folders, tmp_path, capsys):
    tokenizer = tiny_tokenizer()
    other = RSTNetProcessor(tokenizer=build_tokenizer(["a zebra"], min_count=1))
    save_model(rstnet.tiny_captioner(visual_feature_size=10), other, tmp_path / "other words")
    output = fails(capsys, "evaluate", "--model", folders[0], tmp_path / "other words", "--data", SPEC)
    assert "other words" in output and "vocabulary" in output
    save_model(rstnet.tiny_captioner(), RSTNetProcessor(tokenizer=tokenizer), tmp_path / "features")
    output = fails(capsys, "caption", "--model", folders[0], tmp_path / "features", "--data", SPEC)
    assert "visual_feature_size" in output and "12" in output
