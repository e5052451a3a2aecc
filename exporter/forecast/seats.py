"""`max_num_seqs`, where nobody told it: the page does not show it, but a queue beside free blocks does.

Requests that wait while the pool has plenty of room wait for a sequence slot, if the number of running ones does
not move for several readings. (They may also wait for the token budget of prefills; then that number moves.)
"""

from exporter.reading import EngineReading

ROOM = 0.8
"""Usage below which blocks are not what requests wait for."""
STANDSTILL = 5
"""Readings in a row with the same number running and others waiting."""


class SeatLimit:
    """The limit inferred so far; a higher number of running requests refutes it."""

    def __init__(self) -> None:
        """Nothing is known at the start."""
        self.limit: float | None = None
        self._running: float | None = None
        self._same = 0

    def observe(self, reading: EngineReading) -> None:
        """Take one reading."""
        running = reading.running or 0.0
        if self.limit is not None and running > self.limit:
            self.limit = None
        queueing = bool(reading.waiting) and running > 0 and (reading.kv_usage or 1.0) < ROOM
        self._same = self._same + 1 if queueing and running == self._running else int(queueing)
        self._running = running
        if self._same >= STANDSTILL:
            self.limit = running
