"""Progress of a long piece of work: a bar in a terminal, elsewhere a line of the log every 30 seconds."""

import logging
import time

from tqdm.auto import tqdm

logger = logging.getLogger(__name__)

SECONDS_BETWEEN_LINES = 30.0


class ProgressDisplay:
    """Shows the progress of one piece of work, such as an epoch, in one process.

        with ProgressDisplay("epoch 1", total=100) as display:
            display.update(10)

    Args:
        name: of the work.
        total, done: number of items, and of those that are already done.
        unit: name of the items, in the plural.
        shown: whether this process shows anything.
    """

    def __init__(self, name: str, total: int, done: int = 0, unit: str = "images", shown: bool = True) -> None:
        self.name, self.total, self.unit, self.shown = name, total, unit, shown
        self.bar = tqdm(
            desc=name, total=total, initial=done, unit=f" {unit}", leave=False, disable=None if shown else True
        )
        self.summary = ""
        self.done_before = done
        self.started_at = self.last_line_at = time.monotonic()

    def __enter__(self) -> "ProgressDisplay":
        return self

    def __exit__(self, *exception: object) -> None:
        self.bar.close()

    def update(self, done: int, time_left: str | None = None, summary: str | None = None) -> None:
        """Shows the items done, the time left and a summary.

        Args:
            done: items done so far, those before this display among them.
            time_left: an estimate; by default from the pace so far.
            summary: shown from now on, such as the loss; by default the pace.
        """
        if summary is not None:
            self.summary = f"{summary}, "
            self.bar.set_postfix_str(f"{summary}, {time_left} left")
        self.bar.update(done - self.bar.n)
        now = time.monotonic()
        if self.shown and self.bar.disable and now - self.last_line_at >= SECONDS_BETWEEN_LINES:
            self.last_line_at = now
            pace = (done - self.done_before) / (now - self.started_at)
            if time_left is None:
                time_left = tqdm.format_interval((self.total - done) / pace) if pace else "?"
            shown = self.summary or f"{pace:.1f} {self.unit}/s, "
            logger.info("%s, %d of %d %s, %s%s left", self.name, done, self.total, self.unit, shown, time_left)
