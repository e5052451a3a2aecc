"""Whether requests end as those before them did: ends seen over ends expected of requests of these ages.

Lengths are learned from requests that have ended, and when answers suddenly grow, the long ones are those that have
not. But the live ones show it at once: at their ages, so many of them should have ended. The ratio of observed to
expected ends, an epidemiologist's standardised mortality ratio, multiplies the hazard of all lengths.
"""

import numpy as np

from exporter.forecast.lengths import Floats, LengthSample

HALF_LIFE_SECONDS = 45.0
PRIOR_ENDS = 30.0
"""Ends that are taken to have been seen, and expected, before any were."""
BY_CHANCE = 1.15
"""So many times the ends that were seen are still what was expected."""
LEAST = 0.2


class Endings:
    """Follows the ends that are seen and those that are expected; both fade."""

    def __init__(self) -> None:
        """Start with nothing seen: requests end as expected."""
        self._seen = self._expected = 0.0

    def observe(self, seconds: float, seen: int, ages: Floats, steps: float, lengths: LengthSample) -> None:
        """`seen` requests ended within `seconds` in which those of `ages` (N,) tokens generated `steps` more each.

        `lengths` are those of the requests that had ended before.
        """
        if not lengths.size:
            return
        fade = 0.5 ** (seconds / HALF_LIFE_SECONDS)
        hazards = lengths.hazard(np.concatenate((ages + steps, ages)))
        expected = float(hazards[: len(ages)].sum() - hazards[len(ages) :].sum())
        self._seen = self._seen * fade + seen
        self._expected = self._expected * fade + expected

    @property
    def ratio(self) -> float:
        """What the hazard is multiplied by: 1 where nothing has changed, less where requests last longer."""
        found = BY_CHANCE * (self._seen + PRIOR_ENDS) / (self._expected + PRIOR_ENDS)
        return min(1.0, max(LEAST, found))
