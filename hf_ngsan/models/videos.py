"""Frames of video files, chosen evenly or every so many seconds, decoded by PyAV (extra `video`).

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
"""Frames of a clip where nothing else is said."""
MAX_FRAMES = 512
"""Most frames of a clip that are kept."""
SEEK_SECONDS = 10
"""Longest gap between two chosen frames that is decoded; a longer one is jumped over, to a key frame."""
REORDERED = 16
"""Most pictures that H.264 and its successors store before one that is shown earlier."""
DECODERS_WITH_ALPHA = {"vp8": "libvpx", "vp9": "libvpx-vp9"}
"""FFmpeg's own decoders of these codecs leave the transparency out."""


class Frames(NamedTuple):
    """Upright RGB images of a clip in their order, and when each is shown, in seconds from the first picture."""

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
        num_frames: number of frames, from the middles of as many equal parts of the clip, from its first to its last
            picture; a clip of fewer frames gives each once.
        every_seconds: instead of `num_frames`, a frame from the middle of every so many seconds.
        name: of the file, for errors.

    Raises:
        ImageError: PyAV is missing; no video, a damaged one, one without frames, frames of more than
            `PIL.Image.MAX_IMAGE_PIXELS` pixels, or more than `MAX_FRAMES` frames asked for. A clip that ends in damage
            gives the frames before it, unless there are none.
    """
    name = name or ("the video" if isinstance(source, bytes) else os.fspath(source))
    if not 1 <= num_frames <= MAX_FRAMES or (every_seconds is not None and not every_seconds > 0):
        raise ImageError(f"A clip gives 1 to {MAX_FRAMES} frames, or one every positive number of seconds.")
    try:
        import av
        from av.video.reformatter import VideoReformatter
    except ImportError:
        raise ImageError('Videos are read by PyAV; install it with pip install "hf-ngsan[video]".') from None
    found, file = Frames([], []), io.BytesIO(source) if isinstance(source, bytes) else open(source, "rb")  # noqa: SIM115
    with file:
        container_format = container_of(file.read(12), name)
        file.seek(0)
        try:
            with av.open(file, format=container_format) as container:
                begin, length = extent(container, video_stream(container, name))
            file.seek(0)
            with av.open(file, format=container_format) as container:  # seeking back can miss the first picture
                stream = video_stream(container, name)
                decoder = decoder_of(stream, av.CodecContext)
                if every_seconds is not None:
                    num_frames = max(1, round(length / every_seconds))
                    length = num_frames * every_seconds
                    if num_frames > MAX_FRAMES:
                        raise ImageError(
                            f"{name} would give {num_frames} frames; {MAX_FRAMES} are allowed: take fewer."
                        )
                times = [begin + length * (place + 0.5) / num_frames for place in range(num_frames)]
                reformatter = VideoReformatter()  # making one costs more than a frame
                for frame in frames_at(container, stream, decoder, times):
                    width = max(1, round(frame.width * (stream.sample_aspect_ratio or 1)))
                    if width * frame.height > (Image.MAX_IMAGE_PIXELS or math.inf):
                        raise ImageError(f"{name} has frames of {width} x {frame.height} pixels, which are too many.")
                    found.images.append(upright_image(frame, reformatter, width))
                    found.seconds.append(frame.time - begin)
        except av.FFmpegError as error:
            raise ImageError(f"{name} is no video, or a damaged one ({error.strerror}).") from error
    if not found.images:
        raise ImageError(f"{name} has no frames.")
    return found


def decoder_of(stream: Any, decoders: Any) -> Any:
    """Returns the decoder of a video stream, one of PyAV's `CodecContext` that knows transparency if there is some."""
    decoder = stream.codec_context
    decoder.thread_type = "AUTO"
    if stream.metadata.get("alpha_mode") == "1" and decoder.name in DECODERS_WITH_ALPHA:
        decoder = decoders.create(DECODERS_WITH_ALPHA[decoder.name], "r")
    return decoder


def frames_for(image_processor: Any, source: str | os.PathLike | bytes, name: str | None = None) -> list[Image.Image]:
    """Reads as many frames of a video file as an image processor wants, see [`read_frames`]."""
    number, every = (getattr(image_processor, field, None) for field in ("num_frames", "seconds_per_frame"))
    return read_frames(source, number or NUM_FRAMES, every, name).images


def video_stream(container: Any, name: str) -> Any:
    """Returns the video stream that the file marks as default, the largest of several; cover pictures do not count."""

    def has(stream: Any, flag: str) -> bool:
        return bool(stream.disposition & getattr(type(stream.disposition), flag))

    known = (stream for stream in container.streams.video if stream.codec_context)
    streams = [stream for stream in known if not has(stream, "attached_pic")]
    if not streams:
        raise ImageError(f"{name} has no video stream that PyAV can decode.")
    return max(streams, key=lambda stream: (has(stream, "default"), stream.width * stream.height))


def extent(container: Any, stream: Any) -> tuple[float, float]:
    """Returns the time of the first picture and the length of all in seconds, by packets: headers count sound too."""

    def pictures() -> Iterator[Any]:
        packets = container.demux(stream)
        return until_damage(packet for packet in packets if packet.pts is not None and not packet.is_discard)

    begin = end = min((packet.pts for packet in islice(pictures(), REORDERED + 1)), default=0)
    for seconds in (10**6, 0):  # far behind the end the last key frame is found, unless the file is cut off
        if end == begin:
            container.seek(int(seconds / stream.time_base), stream=stream)
            end = max((packet.pts + (packet.duration or 0) for packet in pictures()), default=begin)
    return float(begin * stream.time_base), float((end - begin) * stream.time_base)


def until_damage(items: Iterable[Any]) -> Iterator[Any]:
    """Yields packets or frames, up to the end of the file or the place where it is damaged."""
    try:
        yield from items
    except Exception as error:
        if not type(error).__module__.startswith("av."):  # PyAV's own, of damaged files
            raise


def decoded(container: Any, stream: Any, decoder: Any) -> Iterator[Any]:
    """Returns the frames with a time from the current place of a file on."""
    decoder.flush_buffers()
    frames = (frame for packet in container.demux(stream) for frame in decoder.decode(packet))
    return until_damage(frame for frame in frames if frame.pts is not None)


def upright_image(frame: Any, reformatter: Any, width: int) -> Image.Image:
    """Returns a frame with a width for square pixels, on white, turned and mirrored as its display matrix says."""
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
    """Yields the frame that is shown at each time, each once, in one pass that jumps over long gaps."""
    frames, shown, waiting, can_jump = decoded(container, stream, decoder), None, None, True
    last, gap = None, int(SEEK_SECONDS / stream.time_base)
    for pts in (math.floor(time / stream.time_base) for time in times):
        if can_jump and shown is not None and pts - shown.pts > gap:
            here = shown.pts
            container.seek(pts, stream=stream)
            frames, waiting = decoded(container, stream, decoder), None
            shown = next(frames, shown)
            can_jump = shown.pts > here  # without a key frame between, all that was decoded is decoded again
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
    """Returns FFmpeg's name of the format of a file; playlists, which name other files, and the like are not read."""
    if head[4:8] in (b"ftyp", b"moov", b"mdat", b"wide", b"free", b"skip"):
        return "mov"
    for begin, container in ((b"\x1aE\xdf\xa3", "matroska"), (b"GIF8", "gif"), (b"RIFF", "avi")):
        if head.startswith(begin) and (container != "avi" or head[8:] == b"AVI "):
            return container
    raise ImageError(f"{name} is no video file of mp4, mov, webm, mkv, avi or gif.")
