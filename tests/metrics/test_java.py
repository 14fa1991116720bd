"""METEOR and SPICE: what is missing is said, and METEOR is the official one where Java is there."""

import pytest

from hf_ngsan.metrics import CaptionMetrics, Meteor, Spice
from hf_ngsan.metrics import java as module
from hf_ngsan.metrics.java import JavaMeteor

PROGRAMS = pytest.mark.parametrize("metric", [JavaMeteor, pytest.param(Spice, marks=pytest.mark.slow)])


@PROGRAMS
def test_java_is_missing(metric, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(module.JavaMetricUnavailable, match=f"{metric.display_name} .*PATH"):
        metric()
    assert set(CaptionMetrics().compute(predictions=["a", "b"], references=[["a"], ["b"]])) >= {"cider_d"}
    with pytest.raises(module.JavaMetricUnavailable):
        Meteor(backend="java") if metric is JavaMeteor else CaptionMetrics(metrics=["bleu", "spice"])


@pytest.fixture
def pretend_java(monkeypatch):
    monkeypatch.setattr(module.shutil, "which", lambda name: f"/usr/bin/{name}")


@pytest.mark.parametrize(
    ("metric", "present", "missing"),
    [
        (JavaMeteor, [], r"meteor-1\.5\.jar.*pycocoevalcap"),
        (Spice, ["spice/spice-1.0.jar"], r"corenlp-3\.6\.0\.jar.*stanford-corenlp-full"),
    ],
)
def test_a_file_is_missing(pretend_java, monkeypatch, tmp_path, metric, present, missing):
    for name in present:
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).touch()

    class Package:
        submodule_search_locations = [str(tmp_path)]

    monkeypatch.setattr(module.importlib.util, "find_spec", lambda name: Package)
    with pytest.raises(FileNotFoundError, match=missing):
        metric()


@pytest.fixture
def fake_java(pretend_java, monkeypatch, tmp_path):
    """Returns what puts a shell script in the place of the Java programs."""

    def replace(script):
        fake = tmp_path / "java"
        fake.write_text(f"#!/bin/sh\n{script}\n")
        fake.chmod(0o755)
        for metric in (JavaMeteor, Spice):
            (tmp_path / metric.display_name.lower()).mkdir()
            monkeypatch.setattr(metric, "preflight", classmethod(lambda cls: tmp_path))
        monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")

    return replace


WRITE_SCORES = "while [ $1 != -out ]; do shift; done; printf '%s' '{}' > $2"


@PROGRAMS
@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("echo 'Error: could not find the moon' >&2; exit 1", "could not find the moon"),
        ("while read line; do echo moon; done; " + WRITE_SCORES.format("moon"), "no score|stopped"),
        pytest.param("exec sleep 600", "no answer within 1 s", marks=pytest.mark.slow),
        pytest.param("cat; " + WRITE_SCORES.format('[{"image_id": 7}]'), "no score|stopped", marks=pytest.mark.slow),
    ],
)
def test_a_program_that_stops_hangs_or_babbles_is_reported(fake_java, monkeypatch, metric, script, reason):
    fake_java(script)
    monkeypatch.setattr(metric, "seconds_to_start", 1)
    monkeypatch.setattr(metric, "seconds_a_caption", 0)
    with pytest.raises(module.JavaProgramError, match=f"{metric.display_name}.*{reason}"):
        metric().compute(predictions=["a"], references=[["a"]])
