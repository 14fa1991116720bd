"""Reads frames of video files, evenly spaced or at a fixed interval, with PyAV (extra `video`).

```python
clip = read_frames("clip.mp4", num_frames=8)
clip.images[0].size, clip.seconds  # (640, 360), [0.5, 1.5, 2.5, ...]
```
"""

import io
import math
import os
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from .images import ImageError, upright_rgb

NUM_FRAMES = 8
"""Default number of frames of a clip."""
MAX_FRAMES = 512
"""Maximum number of frames of a clip."""
SEEK_SECONDS = 10
"""Longest gap in seconds between two chosen frames that is decoded; in a longer gap, reading jumps to a key frame."""
REORDERED = 16
"""Maximum number of frames that H.264 and its successors store before a frame that is shown earlier."""
DECODERS_WITH_ALPHA = {"vp8": "libvpx", "vp9": "libvpx-vp9"}
"""Decoders for codecs whose decoders in FFmpeg ignore transparency."""


class Frames(NamedTuple):
    """Upright RGB images of a clip in order, and the time of each in seconds from the first frame."""

    images: list[Image.Image]
    seconds: list[float]


def read_frames(
    source: str | os.PathLike | bytes,
    num_frames: int = NUM_FRAMES,
    every_seconds: float | None = None,
    name: str | None = None,
) -> Frames:
    """Reads some frames of a video file.

    Args:
        source: path of a file (mp4, mov, webm, mkv, avi, gif), or its bytes.
        num_frames: number of frames. The clip is divided into as many equal parts, and the frame in the middle of each
            is read; a clip with fewer frames gives each frame once.
        every_seconds: length of the parts in seconds, instead of `num_frames`.
        name: name of the file in errors.

    Raises:
        ImageError: PyAV is missing; the file is not a video, is damaged or has no frames; frames have more than
            `PIL.Image.MAX_IMAGE_PIXELS` pixels; or more than `MAX_FRAMES` frames are requested. For a file that is
            damaged later on, the frames before the damage are returned.
    """
    name = name or ("the video" if isinstance(source, bytes) else os.fspath(source))
    if not 1 <= num_frames <= MAX_FRAMES or (every_seconds is not None and not every_seconds > 0):
        raise ImageError(f"Choose 1 to {MAX_FRAMES} frames of a clip, or a positive number of seconds per frame.")
    try:
        import av
        from av.video.reformatter import VideoReformatter
    except ImportError:
        raise ImageError('Reading videos needs PyAV; install it with pip install "hf-ngsan[video]".') from None
    clip, file = Frames([], []), io.BytesIO(source) if isinstance(source, bytes) else open(source, "rb")  # noqa: SIM115
    with file:
        container_format = container_of(file.read(12), name)
        file.seek(0)
        try:
            with av.open(file, format=container_format) as container:
                begin, length = extent(container, video_stream(container, name))
            file.seek(0)
            with av.open(file, format=container_format) as container:  # seeking back can miss the first frame
                stream = video_stream(container, name)
                decoder = decoder_of(stream, av.CodecContext)
                if every_seconds is not None:
                    num_frames = max(1, round(length / every_seconds))
                    length = num_frames * every_seconds
                    if num_frames > MAX_FRAMES:
                        raise ImageError(f"{name} would give {num_frames} frames; use at most {MAX_FRAMES}.")
                times = [begin + length * (place + 0.5) / num_frames for place in range(num_frames)]
                reformatter = VideoReformatter()  # creating one takes longer than a frame
                for frame in frames_at(container, stream, decoder, times):
                    width = max(1, round(frame.width * (stream.sample_aspect_ratio or 1)))
                    if width * frame.height > (Image.MAX_IMAGE_PIXELS or math.inf):
                        raise ImageError(f"{name} has frames of {width} x {frame.height} pixels, which are too many.")
                    clip.images.append(upright_image(frame, reformatter, width))
                    clip.seconds.append(frame.time - begin)
        except av.FFmpegError as error:
            raise ImageError(f"{name} is not a video, or is damaged ({error.strerror}).") from error
    if not clip.images:
        raise ImageError(f"{name} has no frames.")
    return clip


def decoder_of(stream: Any, decoders: Any) -> Any:
    """Returns the decoder of a video stream, a PyAV `CodecContext`; transparent streams get one that supports it."""
    decoder = stream.codec_context
    decoder.thread_type = "AUTO"
    if stream.metadata.get("alpha_mode") == "1" and decoder.name in DECODERS_WITH_ALPHA:
        decoder = decoders.create(DECODERS_WITH_ALPHA[decoder.name], "r")
    return decoder


def frames_for(image_processor: Any, source: str | os.PathLike | bytes, name: str | None = None) -> list[Image.Image]:
    """Reads the frames of a video file that an image processor is configured for; see [`read_frames`]."""
    number, every = (getattr(image_processor, field, None) for field in ("num_frames", "seconds_per_frame"))
    return read_frames(source, number or NUM_FRAMES, every, name).images


def video_stream(container: Any, name: str) -> Any:
    """Returns the default video stream of a file, or the largest of several; cover pictures do not count."""

    def has(stream: Any, flag: str) -> bool:
        return bool(stream.disposition & getattr(type(stream.disposition), flag))

    known = (stream for stream in container.streams.video if stream.codec_context)
    streams = [stream for stream in known if not has(stream, "attached_pic")]
    if not streams:
        raise ImageError(f"{name} has no video stream that PyAV can decode.")
    return max(streams, key=lambda stream: (has(stream, "default"), stream.width * stream.height))


def extent(container: Any, stream: Any) -> tuple[float, float]:
    """Returns start and length in seconds of the frames, by their packets, because headers also count sound."""

    def pictures() -> Iterator[Any]:
        packets = container.demux(stream)
        return until_damage(packet for packet in packets if packet.pts is not None and not packet.is_discard)

    begin = end = min((packet.pts for packet in islice(pictures(), REORDERED + 1)), default=0)
    for seconds in (10**6, 0):  # a seek far beyond the end gives the last key frame, unless the file is truncated
        if end == begin:
            container.seek(int(seconds / stream.time_base), stream=stream)
            end = max((packet.pts + (packet.duration or 0) for packet in pictures()), default=begin)
    return float(begin * stream.time_base), float((end - begin) * stream.time_base)


def until_damage(items: Iterable[Any]) -> Iterator[Any]:
    """Yields packets or frames up to the end of the file or to damaged data."""
    try:
        yield from items
    except Exception as error:
        if not type(error).__module__.startswith("av."):  # PyAV's errors are for damaged files
            raise


def decoded(container: Any, stream: Any, decoder: Any) -> Iterator[Any]:
    """Returns the frames that have a time, from the current position of a file."""
    decoder.flush_buffers()
    frames = (frame for packet in container.demux(stream) for frame in decoder.decode(packet))
    return until_damage(frame for frame in frames if frame.pts is not None)


def upright_image(frame: Any, reformatter: Any, width: int) -> Image.Image:
    """Converts a frame to square pixels on white, rotated and mirrored by its display matrix."""
    is_opaque = not (frame.format.has_palette or any(component.is_alpha for component in frame.format.components))
    frame_format = "rgb24" if is_opaque else "rgba"
    converted = reformatter.reformat(frame, width=width, format=frame_format, threads=1)
    image = converted.to_image() if is_opaque else upright_rgb(Image.fromarray(converted.to_ndarray()))
    matrix = frame.side_data.get("DISPLAYMATRIX")
    if matrix is not None:
        (x_from_x, y_from_x, _), (x_from_y, y_from_y, _), _ = np.frombuffer(matrix, np.int32).reshape(3, 3)
        if abs(x_from_y) > abs(x_from_x):
            image, x_from_x, y_from_y = image.transpose(Image.Transpose.TRANSPOSE), x_from_y, y_from_x
        image = image.transpose(Image.Transpose.FLIP_LEFT_RIGHT) if x_from_x < 0 else image
        image = image.transpose(Image.Transpose.FLIP_TOP_BOTTOM) if y_from_y < 0 else image
    return image


def frames_at(container: Any, stream: Any, decoder: Any, times: list[float]) -> Iterator[Any]:
    """Yields the frame shown at each time, each frame once, in one pass that jumps over long gaps."""
    frames, shown, waiting, can_jump = decoded(container, stream, decoder), None, None, True
    last, gap = None, int(SEEK_SECONDS / stream.time_base)
    for pts in (math.floor(time / stream.time_base) for time in times):
        if can_jump and shown is not None and pts - shown.pts > gap:
            here = shown.pts
            container.seek(pts, stream=stream)
            frames, waiting = decoded(container, stream, decoder), None
            shown = next(frames, shown)
            can_jump = shown.pts > here  # without a key frame in between, frames would be decoded again
        if waiting is None or waiting.pts <= pts:
            shown, waiting = (shown if waiting is None else waiting), None
            for waiting in frames:
                if waiting.pts > pts:
                    break
                shown, waiting = waiting, None
        shown = waiting if shown is None else shown
        if shown is not None and (last is None or shown.pts > last):
            yield shown
            last = shown.pts


def container_of(head: bytes, name: str) -> str:
    """Returns FFmpeg's name of a file's format; rejects other formats, such as playlists, which name other files."""
    if head[4:8] in (b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip"):
        return "mov"
    for begin, container in ((b"\x1aE\xdf\xa3", "matroska"), (b"GIF8", "gif"), (b"RIFF", "avi")):
        if head.startswith(begin) and (container != "avi" or head[8:] == b"AVI "):
            return container
    raise ImageError(f"{name} is not a video file of type mp4, mov, webm, mkv, avi or gif.")
