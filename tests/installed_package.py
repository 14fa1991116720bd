"""A user's first steps with the installed package; run with the folder of its commands, outside of the checkout."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from matplotlib.cbook import get_sample_data

PHOTOGRAPH = get_sample_data("grace_hopper.jpg", asfileobj=False)
CAPTIONER = "ngsan-photos"
REMOTE = """
import sys
sys.modules["hf_ngsan"] = None  # importing it raises an ImportError
from transformers import AutoModelForImageTextToText, AutoProcessor, pipeline

folder, photograph = sys.argv[1:]
model = AutoModelForImageTextToText.from_pretrained(folder, trust_remote_code=True).eval()
processor = AutoProcessor.from_pretrained(folder, trust_remote_code=True)
[caption] = processor.batch_decode(model.generate(**processor(images=[photograph])), skip_special_tokens=True)
assert type(model).__module__.startswith("transformers_modules.")
assert pipeline("image-to-text", model=folder, trust_remote_code=True)(photograph) == [{"generated_text": caption}]
print(caption)
"""

REMOTE_SEARCH = """
import sys
sys.modules["hf_ngsan"] = None
from PIL import Image
from transformers import AutoModel, AutoProcessor

folder, photograph = sys.argv[1:]
model = AutoModel.from_pretrained(folder, trust_remote_code=True).eval()
processor = AutoProcessor.from_pretrained(folder, trust_remote_code=True)
texts = ["a dog jumps over a log", "a man in a uniform"]
print(int(model(**processor(images=[Image.open(photograph)], text=texts)).logits_per_image.argmax()))
"""


def output_of(*command: object) -> str:
    process = subprocess.run([str(part) for part in command], capture_output=True, text=True)
    if process.returncode:
        sys.exit(f"{command} exits with {process.returncode}:\n{process.stdout}{process.stderr}")
    return process.stdout


def main(commands: Path) -> None:
    import hf_ngsan
    from hf_ngsan.io.packaged import packaged_models

    folder = packaged_models()[CAPTIONER]
    assert folder.is_relative_to(Path(hf_ngsan.__file__).parent), f"{folder} is not that of the wheel"
    command = commands / "hf-ngsan"
    output_of(command, "inspect", CAPTIONER, "--self-test")
    [line] = output_of(command, "caption", PHOTOGRAPH).splitlines()
    caption = line.split("\t")[1]

    from transformers import AutoModelForImageTextToText, AutoProcessor, pipeline

    model = AutoModelForImageTextToText.from_pretrained(folder).eval()
    processor = AutoProcessor.from_pretrained(folder)
    [by_hand] = processor.batch_decode(model.generate(**processor(images=[PHOTOGRAPH])), skip_special_tokens=True)
    [answer] = pipeline("image-to-text", model=str(folder))(PHOTOGRAPH)
    remote = output_of(sys.executable, "-c", REMOTE, folder, PHOTOGRAPH).strip()
    actual = {"command": caption, "classes": by_hand, "pipeline": answer["generated_text"], "remote code": remote}
    assert len(set(actual.values())) == 1, actual
    print(f"All ways say of the photograph: {caption}")

    with tempfile.TemporaryDirectory() as place:
        photographs, index = Path(place, "photographs"), Path(place, "index")
        photographs.mkdir()
        shutil.copy(PHOTOGRAPH, photographs)
        output_of(command, "index", "--images", photographs, "--output", index, "--num-workers", 0)
        [hit] = output_of(command, "search", index, "a man in a uniform").splitlines()
        assert hit.endswith("grace_hopper.jpg"), hit
    dual_encoder = packaged_models()["mhsan-photos"]
    assert output_of(sys.executable, "-c", REMOTE_SEARCH, dual_encoder, PHOTOGRAPH).strip() == "1"
    [line] = output_of(command, "caption", PHOTOGRAPH, "--scores").splitlines()
    print(f"Found by words; captioned with scores: {line}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
