"""Frames of video files, written here by PyAV: which are chosen, and what happens to files that are none."""

import numpy as np
import pytest
from PIL import Image

from hf_ngsan.models import videos
from hf_ngsan.models.image_processing_captioning import ImageError
from hf_ngsan.models.videos import MAX_FRAMES, read_frames

av = pytest.importorskip("av")
CODECS = {"mp4": "libx264", "mov": "libx264", "mkv": "libx264", "webm": "libvpx-vp9", "avi": "mpeg4", "gif": "gif"}


def write_clip(path, num_frames, rate=10, size=(32, 16), distance=None, frames=None):
    """Writes a clip whose frames become brighter; `distance` is that of key frames."""
    with av.open(str(path), "w") as file:
        write_frames(file, CODECS[str(path).rsplit(".", 1)[1]], num_frames, rate, size, distance, frames)
    return path


def write_frames(file, codec, num_frames, rate=10, size=(32, 16), distance=None, frames=None):
    stream = file.add_stream(codec, rate=rate)
    stream.width, stream.height = size
    stream.pix_fmt = "rgb8" if codec == "gif" else "yuv420p"
    if distance:
        stream.codec_context.gop_size = distance
    for number in range(num_frames):
        image = np.full((size[1], size[0], 3), 255 * number / max(1, num_frames - 1), np.uint8)
        if frames is not None:
            image = np.asarray(frames[number])
        for packet in stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")):
            file.mux(packet)
    for packet in stream.encode():
        file.mux(packet)


def brightness(clip):
    return [float(np.asarray(image).mean()) for image in clip.images]


def test_frames_are_the_middles_of_equal_parts_in_every_format(tmp_path):
    for suffix in CODECS:
        clip = read_frames(write_clip(tmp_path / f"clip.{suffix}", 40), num_frames=4)
        assert clip.seconds == pytest.approx([0.5, 1.5, 2.5, 3.5], abs=0.11), suffix
        assert brightness(clip) == pytest.approx([255 * (5 + 10 * n) / 39 for n in range(4)], abs=9), suffix
        assert clip.images[0].size == (32, 16), suffix


def test_a_frame_every_so_many_seconds_and_no_frame_twice(tmp_path):
    path = write_clip(tmp_path / "clip.mp4", 40)
    assert read_frames(path, every_seconds=2).seconds == pytest.approx([1, 3], abs=0.11)
    assert len(read_frames(path, num_frames=100).images) == 40
    assert read_frames(path.read_bytes(), num_frames=1).seconds == pytest.approx([2], abs=0.11)
    assert len(read_frames(write_clip(tmp_path / "one.mp4", 1), num_frames=8).images) == 1


def test_long_gaps_are_jumped_over_to_the_frames_that_decoding_finds(tmp_path, monkeypatch):
    path = write_clip(tmp_path / "clip.mp4", 120, distance=10)
    expected = read_frames(path, num_frames=5)
    monkeypatch.setattr(videos, "SEEK_SECONDS", 0.5)
    found = read_frames(path, num_frames=5)
    assert found.seconds == expected.seconds and brightness(found) == brightness(expected)


def test_a_file_that_does_not_say_its_length_is_decoded_for_it(tmp_path):
    path = tmp_path / "clip.mkv"
    with av.open(str(path), "w", options={"live": "1"}) as file:
        write_frames(file, "libx264", 40)
    with av.open(str(path)) as file:
        assert file.duration is None
    assert read_frames(path, num_frames=4).seconds == pytest.approx([0.5, 1.5, 2.5, 3.5], abs=0.11)


def test_other_files_and_numbers_are_refused(tmp_path):
    whole = write_clip(tmp_path / "clip.mp4", 40).read_bytes()
    sound = tmp_path / "sound.mp4"
    with av.open(str(sound), "w") as file:
        stream = file.add_stream("aac", rate=44100)
        frame = av.AudioFrame.from_ndarray(np.zeros((1, 1024), np.float32), format="fltp", layout="mono")
        frame.sample_rate = 44100
        for packet in (*stream.encode(frame), *stream.encode()):
            file.mux(packet)
    playlist = b"#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n"
    for content in (b"", b"no video", playlist, whole[:300], whole[: len(whole) // 2], sound.read_bytes()):
        with pytest.raises(ImageError):
            read_frames(content)
    with pytest.raises(ImageError):
        read_frames(write_clip(tmp_path / "many.mp4", 40), every_seconds=4 / (2 * MAX_FRAMES))
    with pytest.raises(ImageError):
        read_frames(whole, num_frames=0)
    with pytest.raises(FileNotFoundError):
        read_frames(tmp_path / "none.mp4")


def test_telephones_turn_frames(tmp_path):
    path = tmp_path / "turned.mp4"
    half = Image.new("RGB", (32, 16), "black")
    half.paste("white", (0, 0, 16, 16))  # the left half
    write_clip(path, 10, frames=[half] * 10)
    content = bytearray(path.read_bytes())
    place = content.index(b"tkhd") + 4 + 40  # the matrix of the track: a quarter turn
    matrix = np.array([0, 1 << 16, 0, -(1 << 16), 0, 0, 16 << 16, 0, 1 << 30], ">i4").tobytes()
    content[place : place + 36] = matrix
    image = read_frames(bytes(content), num_frames=1).images[0]
    assert image.size == (16, 32)
    top, bottom = np.asarray(image)[:14].mean(), np.asarray(image)[18:].mean()
    assert (top > 200) and (bottom < 50)
