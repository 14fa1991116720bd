import pytest

import hf_ngsan.metrics


def test_every_public_name_is_there():
    for name in hf_ngsan.metrics.__all__:
        assert getattr(hf_ngsan.metrics, name) is vars(hf_ngsan.metrics)[name] is not None
    assert {"__doc__", *hf_ngsan.metrics.__all__} <= set(dir(hf_ngsan.metrics))


def test_unknown_names_are_refused():
    with pytest.raises(AttributeError, match="Bleurt"):
        _ = hf_ngsan.metrics.Bleurt
