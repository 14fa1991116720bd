import hf_ngsan.data


def test_every_public_name_exists():
    assert {"load_data", "caption_features", "CaptionCollator", "EpochSampler"} <= set(dir(hf_ngsan.data))
    for name in hf_ngsan.data.__all__:
        assert getattr(hf_ngsan.data, name).__name__ == name
