"""Frames of video files, chosen evenly or every so many seconds, decoded by PyAV (extra `video`).

```python
clip = read_frames("clip.mp4", num_frames=8)
clip.images[0].size, clip.seconds  # (640, 360), [0.5, 1.5, 2.5, ...]
```
"""

import io
import math
import os
from collections.abc import Iterator
from typing import Any, NamedTuple

from PIL import Image

from .image_processing_captioning import ImageError

NUM_FRAMES = 8
"""Frames of a clip where nothing else is said."""
MAX_FRAMES = 512
"""Most frames of a clip that are kept."""
SEEK_SECONDS = 10
"""Longest gap between two chosen frames that is decoded; a longer one is jumped over, to a key frame."""


class Frames(NamedTuple):
    """Upright RGB images of a clip in their order, and when each is shown, in seconds from its beginning."""

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
        num_frames: number of frames, from the middles of as many equal parts of the clip; a clip of fewer frames gives
            each once.
        every_seconds: instead of `num_frames`, a frame from the middle of every so many seconds.
        name: of the file, for errors.

    Raises:
        ImageError: PyAV is missing; no video, a damaged one, one without frames, or more than `MAX_FRAMES` frames asked
            for. A clip that ends in damage gives the frames before it, unless there are none.
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
                if not container.streams.video:
                    raise ImageError(f"{name} has no pictures.")
                stream = container.streams.video[0]
                stream.thread_type = "AUTO"
                begin, length = extent(container, stream)
                if every_seconds is not None:
                    num_frames = max(1, round(length / every_seconds))
                    length = num_frames * every_seconds
                    if num_frames > MAX_FRAMES:
                        raise ImageError(
                            f"{name} would give {num_frames} frames; {MAX_FRAMES} are allowed: take fewer."
                        )
                times = [begin + length * (place + 0.5) / num_frames for place in range(num_frames)]
                reformatter = VideoReformatter()  # making one costs more than a frame
                for frame in frames_at(container, stream, times):
                    image = reformatter.reformat(frame, format="rgb24", threads=1).to_image()
                    found.images.append(image.rotate(frame.rotation, expand=True) if frame.rotation else image)
                    found.seconds.append(frame.time - begin)
        except av.FFmpegError as error:
            raise ImageError(f"{name} is no video, or a damaged one ({error.strerror}).") from error
    if not found.images:
        raise ImageError(f"{name} has no frames.")
    return found


def frames_for(image_processor: Any, source: str | os.PathLike | bytes, name: str | None = None) -> list[Image.Image]:
    """Reads as many frames of a video file as an image processor wants, see [`read_frames`]."""
    number, every = (getattr(image_processor, field, None) for field in ("num_frames", "seconds_per_frame"))
    return read_frames(source, number or NUM_FRAMES, every, name).images


def extent(container: Any, stream: Any) -> tuple[float, float]:
    """Returns the time of the first frame and the length in seconds; decodes a file that does not say."""
    if stream.duration is not None and stream.start_time is not None:
        return float(stream.start_time * stream.time_base), float(stream.duration * stream.time_base)
    if container.duration is not None:
        return (container.start_time or 0) / 1e6, container.duration / 1e6
    times = [frame.time for frame in decoded(container, stream)] or [0.0]
    container.seek(0)
    return times[0], (times[-1] - times[0]) * len(times) / max(1, len(times) - 1)


def decoded(container: Any, stream: Any) -> Iterator[Any]:
    """Yields frames with a time, up to the end of the file or the place where it is damaged."""
    try:
        yield from (frame for frame in container.decode(stream) if frame.pts is not None)
    except Exception as error:
        if not type(error).__module__.startswith("av."):  # PyAV's own, of damaged files
            raise


def frames_at(container: Any, stream: Any, times: list[float]) -> Iterator[Any]:
    """Yields the frame that is shown at each time, each once, in one pass that jumps over long gaps."""
    frames, shown, waiting, can_jump = decoded(container, stream), None, None, True
    last, gap = None, int(SEEK_SECONDS / stream.time_base)
    for pts in (math.floor(time / stream.time_base) for time in times):
        if can_jump and shown is not None and pts - shown.pts > gap:
            here = shown.pts
            container.seek(pts, stream=stream)
            frames, waiting = decoded(container, stream), None
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
