import subprocess
import sys

import pytest

import hf_ngsan.data


@pytest.mark.slow
def test_names_are_imported_when_used_and_not_before():
    code = (
        "import sys, hf_ngsan.data as data\n"
        "assert not {'torch', 'datasets', 'transformers.models', 'PIL', 'matplotlib'} & set(sys.modules), 'heavy'\n"
        "data.EpochSampler, data.score_relations, data.make_scene\n"
        "assert not {'torch', 'datasets'} & set(sys.modules), 'heavy'\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_every_public_name_exists():
    assert {"load_data", "caption_features", "CaptionCollator", "EpochSampler"} <= set(dir(hf_ngsan.data))
    for name in hf_ngsan.data.__all__:
        assert getattr(hf_ngsan.data, name).__name__ == name


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nothing_like_that"):
        hf_ngsan.data.nothing_like_that  # noqa: B018
