"""Time and memory for reading frames of a video, against plain PyAV.

Plain PyAV decodes every frame in one pass over the clip and converts the chosen ones. Both take turns; the result is
the ratio of times of each pair. Peak memory is measured in separate processes. The clips are generated: moving scenes
of 320 x 240 pixels at 25 frames per second, half a minute and ten minutes long.

    python benchmarks/clips.py
"""

import argparse
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

import av
import numpy as np
from av.video.reformatter import VideoReformatter

from hf_ngsan.data.moving_scenes import draw_clip, make_clip
from hf_ngsan.models.videos import read_frames

LIMIT = 0.9
RATE = 25
MIB = 1024 if sys.platform == "linux" else 1024 * 1024


def write_clip(path: Path, seconds: int) -> None:
    frames = [np.asarray(frame.resize((320, 240))) for index in range(8) for frame in draw_clip(make_clip(0, 0, index))]
    noise = np.random.default_rng(0).integers(0, 24, (240, 320, 3), dtype=np.uint8)
    with av.open(str(path), "w") as file:
        stream = file.add_stream("libx264", rate=RATE)
        stream.width, stream.height, stream.pix_fmt = 320, 240, "yuv420p"
        for number in range(seconds * RATE):
            image = frames[number // 3 % len(frames)] // 2 + np.roll(noise, number, axis=0)
            for packet in stream.encode(av.VideoFrame.from_ndarray(image, format="rgb24")):
                file.mux(packet)
        for packet in stream.encode():
            file.mux(packet)


def own_pace(path: Path, every: int) -> None:
    reformatter = VideoReformatter()
    with av.open(str(path)) as file:
        file.streams.video[0].thread_type = "AUTO"
        for number, frame in enumerate(file.decode(video=0)):
            if number % every == 0:
                reformatter.reformat(frame, format="rgb24", threads=1).to_image()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=7)
    parser.add_argument("--peak", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak is not None:
        read_frames(options.peak, num_frames=16)
        print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / MIB)
        return
    with tempfile.TemporaryDirectory() as folder:
        short, long = Path(folder, "short.mp4"), Path(folder, "long.mp4")
        write_clip(short, 30)
        write_clip(long, 600)
        for name, path, frames in (("half a minute, 150 frames", short, 150), ("ten minutes, 16 frames", long, 16)):
            every, ratios = (30 if path == short else 600) * RATE // frames, []
            for _ in range(options.pairs):
                times = []
                for work in (partial(own_pace, path, every), partial(read_frames, path, num_frames=frames)):
                    begin = time.process_time()
                    work()
                    times.append(time.process_time() - begin)
                ratios.append(times[0] / times[1])
            low, middle, high = min(ratios), statistics.median(ratios), max(ratios)
            print(f"{name}: {middle:.2f} ({low:.2f} to {high:.2f}) times the pace of PyAV; required {LIMIT}")
        peaks = [
            float(subprocess.run([sys.executable, __file__, "--peak", path], capture_output=True, check=True).stdout)
            for path in (short, long)
        ]
        print(f"peak memory of 16 frames: {peaks[0]:.0f} MiB of half a minute, {peaks[1]:.0f} MiB of ten minutes")


if __name__ == "__main__":
    main()
