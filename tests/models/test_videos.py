"""Frames of video files, written here by PyAV: the chosen frames, and files that are not videos."""

import itertools
from fractions import Fraction

import numpy as np
import pytest
from PIL import Image

from hf_ngsan.models import videos
from hf_ngsan.models.image_processing_captioning import ImageError
from hf_ngsan.models.videos import MAX_FRAMES, read_frames
from tests.tables import each_row

av = pytest.importorskip("av")
CODECS = {"mp4": "libx264", "mov": "libx264", "mkv": "libx264", "webm": "libvpx-vp9", "avi": "mpeg4", "gif": "gif"}


def write_clip(path, num_frames, **options):
    """Writes a clip whose frames become brighter."""
    with av.open(str(path), "w") as file:
        write_frames(file, CODECS[str(path).rsplit(".", 1)[1]], num_frames, **options)
    return path


def write_frames(file, codec, num_frames, rate=10, size=(32, 16), frames=None, start=0, sound=None, **settings):
    stream = file.add_stream(codec, rate=rate, options={"auto-alt-ref": "0"} if codec == "libvpx" else {})
    stream.width, stream.height = size
    sound = sound and file.add_stream(sound, rate=48000)
    for name, value in {"pix_fmt": "rgb8" if codec == "gif" else "yuv420p", **settings}.items():
        setattr(stream.codec_context, name, value)
    for number in range(num_frames):
        image = np.full((size[1], size[0], 3), 255 * number / max(1, num_frames - 1), np.uint8)
        if frames is not None:
            image = np.asarray(frames[number])
        frame = av.VideoFrame.from_ndarray(image, format="rgba" if image.shape[-1] == 4 else "rgb24")
        frame.pts = number + start * rate
        file.mux(stream.encode(frame))
    file.mux(stream.encode())
    if sound:
        write_sound(file, sound, 10)


def write_sound(file, stream, seconds):
    for number in range(50 * seconds):
        sound = np.zeros((1, 960), np.int16)
        frame = av.AudioFrame.from_ndarray(sound, format="s16", layout="mono")
        frame.sample_rate, frame.pts = 48000, 960 * number
        file.mux(stream.encode(frame))
    file.mux(stream.encode())


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


@each_row(
    ("suffix", "sound", "start", "options"),
    [
        ("mp4", "aac", 3, {}),
        ("mp4", "aac", 0, {"movflags": "dash+frag_keyframe+empty_moov"}),
        ("mkv", "libopus", 0, {}),
        ("mkv", "libopus", 3, {}),
        ("webm", "libopus", 3, {}),
    ],
)
def test_the_length_of_a_clip_is_that_of_its_pictures(tmp_path, suffix, sound, start, options):
    path = tmp_path / f"clip.{suffix}"
    with av.open(str(path), "w", options=options) as file:
        write_frames(file, CODECS[suffix], 40, rate=20, gop_size=15, start=start, sound=sound)
    for clip in (read_frames(path, num_frames=8), read_frames(path, every_seconds=0.25)):
        assert brightness(clip) == pytest.approx([255 * (2 + 5 * n) / 39 for n in range(8)], abs=3)
        assert clip.seconds == pytest.approx([0.1 + 0.25 * n for n in range(8)], abs=0.01)


def test_long_gaps_are_jumped_over_to_the_frames_that_decoding_finds(tmp_path, monkeypatch):
    path = write_clip(tmp_path / "clip.mp4", 120, gop_size=10)
    expected = read_frames(path, num_frames=5)
    monkeypatch.setattr(videos, "SEEK_SECONDS", 0.5)
    actual = read_frames(path, num_frames=5)
    assert actual.seconds == expected.seconds and brightness(actual) == brightness(expected)


def test_a_file_that_does_not_say_its_length_is_decoded_for_it(tmp_path):
    path = tmp_path / "clip.mkv"
    with av.open(str(path), "w", options={"live": "1"}) as file:
        write_frames(file, "libx264", 40)
    with av.open(str(path)) as file:
        assert file.duration is None
    assert read_frames(path, num_frames=4).seconds == pytest.approx([0.5, 1.5, 2.5, 3.5], abs=0.11)


def test_other_files_and_numbers_are_refused(tmp_path):
    complete = write_clip(tmp_path / "clip.mp4", 40).read_bytes()
    sound = tmp_path / "sound.mp4"
    with av.open(str(sound), "w") as file:
        write_sound(file, file.add_stream("aac", rate=48000), 1)
    playlist = b"#EXTM3U\n#EXTINF:1,\nfile:///etc/passwd\n"
    for content in (b"", b"no video", playlist, complete[:300], complete[: len(complete) // 2], sound.read_bytes()):
        with pytest.raises(ImageError):
            read_frames(content)
    with pytest.raises(ImageError):
        read_frames(write_clip(tmp_path / "many.mp4", 40), every_seconds=4 / (2 * MAX_FRAMES))
    with pytest.raises(ImageError):
        read_frames(complete, num_frames=0)
    with pytest.raises(FileNotFoundError):
        read_frames(tmp_path / "none.mp4")


STRAIGHT = [(a, 0, 0, d) for a in (-1, 1) for d in (-1, 1)]
TURNED = [(0, b, c, 0) for b in (-1, 1) for c in (-1, 1)]


@each_row("matrix", STRAIGHT + TURNED)
def test_frames_are_turned_and_mirrored_as_the_file_says(tmp_path, matrix):
    a, b, c, d = matrix
    levels, expected = np.array([[0, 80], [160, 240]]), np.zeros((2, 2))  # of the quarters
    picture = np.repeat(levels.repeat(8, 0).repeat(16, 1)[..., None], 3, -1).astype(np.uint8)
    for x, y in itertools.product((-1, 1), repeat=2):
        expected[int(b * x + d * y > 0), int(a * x + c * y > 0)] = levels[int(y > 0), int(x > 0)]
    content = bytearray(write_clip(tmp_path / "clip.mp4", 4, frames=[picture] * 4).read_bytes())
    place = content.index(b"tkhd") + 4 + 40  # the rotation matrix of the track
    content[place : place + 36] = np.array([a << 16, b << 16, 0, c << 16, d << 16, 0, 0, 0, 1 << 30], ">i4").tobytes()
    image = np.asarray(read_frames(bytes(content), num_frames=1).images[0])[..., 0]
    assert image.shape == ((16, 32) if a else (32, 16))
    rows, columns = image.shape
    assert image[rows // 4 :: rows // 2, columns // 4 :: columns // 2] == pytest.approx(expected, abs=12)


@each_row(
    ("name", "codec", "pixels"),
    [
        ("clip.webm", "libvpx-vp9", "yuva420p"),
        ("clip.mkv", "libvpx", "yuva420p"),
        ("clip.mov", "qtrle", "argb"),
        ("clip.mov", "png", "rgba"),
    ],
)
def test_transparent_clips_are_shown_on_white_after_jumps_too(tmp_path, monkeypatch, name, codec, pixels):
    monkeypatch.setattr(videos, "SEEK_SECONDS", 0.2)
    picture = np.zeros((16, 32, 4), np.uint8)
    picture[:, :16] = (0, 0, 0, 255)
    with av.open(str(tmp_path / name), "w") as file:
        write_frames(file, codec, 20, gop_size=5, frames=[picture] * 20, pix_fmt=pixels)
    for image in read_frames(tmp_path / name, num_frames=3).images:
        assert np.asarray(image)[8, [4, 28]] == pytest.approx(np.array([[0] * 3, [255] * 3]), abs=4)


def test_pixels_that_are_not_square_and_frames_that_are_too_large(tmp_path, monkeypatch):
    path = write_clip(tmp_path / "clip.mp4", 2, size=(90, 36), sample_aspect_ratio=Fraction(64, 45))
    assert read_frames(path).images[0].size == (128, 36)
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 128 * 36 - 1)
    with pytest.raises(ImageError):
        read_frames(path)


@each_row(
    ("suffix", "marks", "chosen"),
    [("mp4", ("attached_pic", "default", "default"), 2), ("mkv", (0, "default", 0), 1), ("mkv", (0, 0, 0), 2)],
)
def test_the_stream_that_the_file_marks_or_the_largest_is_read(tmp_path, suffix, marks, chosen):
    path, frames = tmp_path / f"clip.{suffix}", []
    with av.open(str(path), "w") as file:
        for number, mark in enumerate(marks):
            stream = file.add_stream("png" if mark == "attached_pic" else CODECS[suffix], rate=10)
            stream.width, stream.height = 32 + 16 * number, 16
            stream.pix_fmt = "rgb24" if mark == "attached_pic" else "yuv420p"
            stream.disposition = av.stream.Disposition[mark].value if mark else 0  # PyAV 17 accepts only a number
            frames.append((stream, av.VideoFrame.from_ndarray(np.zeros((16, stream.width, 3), np.uint8))))
        for stream, frame in frames:
            file.mux([*stream.encode(frame), *stream.encode()])
    assert read_frames(path).images[0].size == (32 + 16 * chosen, 16)
