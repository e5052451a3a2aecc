"""How much one engine's forecast may cost, so that many engines take together what a few may take."""

from dataclasses import dataclass
from math import floor

ROLLOUTS = 64
FEWEST_ROLLOUTS = 16
ROLLOUTS_OF_ALL = 512
"""Roll-outs of all engines together, while there are no fewer than `FEWEST_ROLLOUTS` of each."""
REROLL_SECONDS = 2.0
"""A roll-out stands this long; the running set and the last minutes are followed at every reading."""
ENGINES_A_SECOND = 6
"""Of many engines, that many are rolled each second."""


@dataclass(frozen=True, slots=True)
class Effort:
    """Roll-outs at a time and seconds between them.

    `phase` (0..1) is where in that time this engine's turns begin: what happens to all engines at once is not a reason
    to roll them all at once.
    """

    rollouts: int
    reroll_seconds: float
    phase: float

    @classmethod
    def among(cls, engines: int = 1, number: int = 0) -> "Effort":
        """The share of engine `number` of so many that one process follows; up to eight have all they want."""
        return cls(
            rollouts=min(ROLLOUTS, max(FEWEST_ROLLOUTS, ROLLOUTS_OF_ALL // max(1, engines))),
            reroll_seconds=max(REROLL_SECONDS, engines / ENGINES_A_SECOND),
            phase=number / engines if engines else 0.0,
        )

    def turn(self, before: float | None, time: float) -> bool:
        """Whether this engine may be rolled at the reading of `time`, the one before being of `before`.

        Few engines may always; of many, each when a turn of its own has begun since.
        """
        if self.rollouts == ROLLOUTS or before is None:
            return True
        return self._turns(time) != self._turns(before)

    def _turns(self, time: float) -> int:
        return floor(time / self.reroll_seconds + self.phase)
