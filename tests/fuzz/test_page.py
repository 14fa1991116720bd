"""Events of the page with one thing wrong, or several: each ends, and is refused in one sentence or answered.

`HF_NGSAN_FUZZ_SEED=7 pytest -m slow tests/fuzz/test_page.py` tries others.
"""

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("gradio", reason="the extra demo is not installed")

import httpx

from hf_ngsan.loading.pipelines import CaptioningPipeline
from hf_ngsan.space import Parts
from hf_ngsan.space.parts import Search, regions_of
from tests.models.mhsan import tiny as mhsan
from tests.models.tiny import tiny_captioner, tiny_processor
from tests.models.tiny_photos import pixel_captioner, pixel_processor
from tests.space.test_guard import FORGED, META, outcome, served, uploaded

from .mutations import VALUES, WRITTEN, mutated
from .test_server import picture

FEW = 20
PRIVATE = "/etc/hostname"


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[httpx.Client]]:
    """A page of photographs with search, and one of regions."""
    search = Search(mhsan.tiny_model(vision_config=mhsan.VISION), mhsan.tiny_processor(pixels=True))
    photographs = CaptioningPipeline(model=pixel_captioner(), processor=pixel_processor())
    model, processor = tiny_captioner(visual_feature_size=10, geometric_bias=["query"]), tiny_processor()
    rows = regions_of(model, processor, "scenes:size=10,seed=1", "test")
    regions = Parts("tiny", CaptioningPipeline(model=model, processor=processor), rows)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRADIO_TEMP_DIR", str(tmp_path_factory.mktemp("gradio")))
        first, second = served(Parts("tiny", photographs, search=search)), served(regions)
        yield [next(first), next(second)]
        for page in (first, second):
            next(page, None)


def event(draw: random.Random, client: httpx.Client) -> tuple[list, dict]:
    """The data of an event, and further fields of its request."""
    upload: Any = {"path": uploaded(client, picture(draw), draw.choice(["a.png", "b.svg", "é.jpg"])), "meta": META}
    if draw.random() < 0.2:
        upload = FORGED[draw.choice(list(FORGED))](PRIVATE)
    change = {"index": draw.choice([0, 1, 99]), "dx": 0.1, "dy": -0.2, "corner": draw.random() < 0.5}
    data = draw.choice([[upload, 2], [[upload, upload], "a red ball", None], [0, 2], [None, 2], [{"number": 1}, 2]])
    if draw.random() < 0.6:
        data = mutated(draw, data, [PRIVATE])
    if not isinstance(data, list):
        data = [data]
    more: dict[str, Any] = {"fn_index": draw.choice([*range(12), -1, 99])}
    if draw.random() < 0.4:
        more["event_data"] = mutated(draw, change, [PRIVATE]) if draw.random() < 0.5 else draw.choice(VALUES)
    return data, more


def check(pages: list[httpx.Client], numbers: range) -> None:
    seed = os.environ.get("HF_NGSAN_FUZZ_SEED", "1")
    answered = 0
    for number in numbers:
        draw = random.Random(f"{seed} {number}")
        client = draw.choice(pages)
        data, more = event(draw, client)
        sent = json.dumps({"data": data, "session_hash": f"s{number}", **more})
        for mark, written in WRITTEN.items():
            sent = sent.replace(json.dumps(mark), written)
        joined = client.post("/gradio_api/queue/join", content=sent, headers={"content-type": "application/json"})
        told = f"seed {seed}, event {number}: {joined.status_code} {joined.text[:300]}"
        assert joined.status_code < 500 and len(joined.text) < 2_000, told
        if joined.status_code != 200:
            continue
        lines = client.get("/gradio_api/queue/data", params={"session_hash": f"s{number}"}).text.splitlines()
        messages = [json.loads(line[6:]) for line in lines if line.startswith("data: ")]
        ended = [message for message in messages if message["msg"] in ("process_completed", "unexpected_error")]
        assert ended, told
        answered += 1
        error = (ended[-1].get("output") or {}).get("error")
        assert error is None or (isinstance(error, str) and len(error) < 400 and "\n" not in error), (told, error)
        assert Path(PRIVATE).read_text().strip() not in str(messages), told
    assert answered
    for client in pages:
        assert client.get("/").status_code == 200


@pytest.fixture(autouse=True)
def no_traceback(capfd):
    yield
    out, err = capfd.readouterr()
    assert "Traceback" not in out + err


@pytest.mark.slow
def test_odd_events_are_refused_in_one_sentence(pages):
    check(pages, range(FEW))
    upload = {"path": uploaded(pages[0], picture(random.Random(3))), "meta": META}
    assert outcome(pages[0], [upload, 1], fn_index=0)
