"""Nothing is sent that the user did not ask for: commands, page and server look up no foreign name."""

import base64
import json
import os
import re
import shutil
import subprocess
import sys
import urllib.request
from pathlib import Path

import pytest
import yaml

from hf_ngsan.cli import COMMANDS, main
from tests.data.formats.files import write_tsv
from tests.models.tiny_photos import PHOTOS
from tests.tasks.tiny import tiny_sections

SCENES = "scenes:size=4,validation=2,test=2"
WORDS = f"""
caption photos/0.png
caption photos/0.png --scores
caption --data images:photos --split train --engine onnx
demo --output demo
index --images photos --output photos.index
index --images photos --output milvus.index --backend milvus:photos.db
search photos.index girl
explain --model mhsan-photos photos/0.png girl
models
configs
datasets
train --config tiny.yaml
evaluate --model run --data {SCENES} --output captions.json
references --data {SCENES} --output references.json
score --predictions captions.json --references references.json
reproduce ngsan --table 4 --data scenes:size=4,validation=2,test=20 --dry-run
audit --model run
extract --images photos --backbone efficientnet-lite0 --output features
convert regions.tsv --output converted
inspect ngsan-scenes --self-test
export --model ngsan-photos --output exported
push run somebody/captioner --dry-run staged
serve --port 0 --engine onnx
app
"""
ALIKE = {"answer", "attach-vision", "calibrate", "translate", "visualness"}
"""Commands that load models and datasets like others."""
ELSEWHERE = re.compile(r'htons\(53\)|inet_addr\("(?!127\.)|inet_pton\(AF_INET6, "(?!::1"|::ffff:127\.)')


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_commands_page_and_server_look_up_no_name_elsewhere(tmp_path):
    assert {line.split()[0] for line in WORDS.split("\n") if line} | ALIKE == COMMANDS.keys()
    (tmp_path / "photos").mkdir()
    for number, photo in enumerate(PHOTOS):
        photo.save(tmp_path / "photos" / f"{number}.png")
        (tmp_path / "photos" / f"{number}.txt").write_text("a girl on a swing")
    write_tsv(tmp_path / "regions.tsv")
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(tiny_sections(Path("run"), training={"epochs": 1})))
    env = {name: value for name, value in os.environ.items() if not name.startswith(("HF_", "ORT_"))}
    env |= {"HOME": str(tmp_path), "PYTHONPATH": str(Path(__file__).parent.parent)}
    calls_seen = "trace=connect,sendto,sendmsg,sendmmsg"
    traced = ["strace", "-f", "--seccomp-bpf", "-qq", "-s0", "-e", calls_seen, "-e", "signal=none", "-o", "calls"]
    subprocess.run([*traced, sys.executable, "-m", "tests.test_nothing_is_sent"], cwd=tmp_path, env=env, check=True)
    calls = (tmp_path / "calls").read_text().splitlines()
    assert calls and not [call for call in calls if ELSEWHERE.search(call)]
    assert not list(tmp_path.rglob("*.onnxruntime*"))  # where ONNX Runtime stores data that it will send


def run_all() -> None:
    for words in filter(None, map(str.split, WORDS.split("\n"))):
        if words[0] not in ("serve", "app"):
            assert main(words) == 0, words
            continue
        command = [sys.executable, "-m", "hf_ngsan.cli", *words]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
            try:
                assert server.stdout is not None
                [url] = re.findall(r"http://127\.0\.0\.1:\d+", server.stdout.readline())
                image = base64.b64encode(Path("photos/0.png").read_bytes()).decode()
                body = json.dumps({"images": [image]}).encode() if words[0] == "serve" else None
                place, head = url + "/caption" * (body is not None), {"Content-Type": "application/json"}
                request = urllib.request.Request(place, body, head)
                assert urllib.request.urlopen(request).status == 200
            finally:
                server.terminate()
    subprocess.run([sys.executable, "exported/captioner.py", "photos/0.png"], check=True)


if __name__ == "__main__":
    run_all()
