"""How far an epoch is: a progress bar in a terminal, elsewhere a line of the log now and then."""

import logging
import time

from tqdm.auto import tqdm

logger = logging.getLogger(__name__)

SECONDS_BETWEEN_LINES = 30.0


class ProgressDisplay:
    """Shows the progress of one epoch, in one process.

    Args:
        name: of the epoch.
        total, done: rows of the epoch, and those that have been trained on already.
        unit: what rows are called, in the plural.
        shown: whether this process shows anything.
    """

    def __init__(self, name: str, total: int, done: int, unit: str, shown: bool = True):
        self.name, self.total, self.unit, self.shown = name, total, unit, shown
        self.bar = tqdm(
            desc=name, total=total, initial=done, unit=f" {unit}", leave=False, disable=None if shown else True
        )
        self.summary = ""
        self.last_line_at = time.monotonic()

    def __enter__(self) -> "ProgressDisplay":
        return self

    def __exit__(self, *exception: object) -> None:
        self.bar.close()

    def update(self, done: int, time_left: str, summary: str | None = None) -> None:
        """Shows the rows trained on, the time left and, from when it is given on, a summary of the training."""
        if summary is not None:
            self.summary = f"{summary}, "
            self.bar.set_postfix_str(f"{summary}, {time_left} left")
        self.bar.update(done - self.bar.n)
        if self.shown and self.bar.disable and time.monotonic() - self.last_line_at >= SECONDS_BETWEEN_LINES:
            self.last_line_at = time.monotonic()
            logger.info("%s, %d of %d %s, %s%s left", self.name, done, self.total, self.unit, self.summary, time_left)
