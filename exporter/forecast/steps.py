"""How long the engine's forward passes take.

Seconds per step are a line in (1, new tokens per step, resident KV tokens), by decayed least squares
over readings; between readings only totals are known, and the line is linear, so totals are enough:
seconds = t0·steps + t1·new tokens + t2·steps·resident.
"""

import numpy as np

DECAY_SECONDS = 900.0
"""Memory of the regression: long enough to see several levels of load, short enough to follow the GPU's clock."""
_IDLE_STEP = 1e-4


class StepTimes:
    """The regression, fed one interval at a time."""

    def __init__(self) -> None:
        """Start without knowledge; the first intervals give the plain average."""
        self._xx = np.zeros((3, 3))
        self._xy = np.zeros(3)
        self._steps = 0.0
        self._seconds = 0.0
        self._coefficients: np.ndarray | None = None

    def observe(self, seconds: float, steps: float, tokens: float, resident: float, busy: bool) -> None:
        """One interval of `seconds` with `steps` passes over `tokens` new tokens and `resident` tokens on average.

        An interval in which the engine may have idled tells nothing of its speed (`busy` is False).
        """
        if not busy or steps <= 0 or seconds <= 0:
            return
        decay = float(np.exp(-seconds / DECAY_SECONDS))
        x = np.array([1.0, tokens / steps / 1e3, resident / 1e5])
        y = seconds / steps
        weight = steps * seconds / y if y > 0 else 0.0
        self._xx = self._xx * decay + weight * np.outer(x, x)
        self._xy = self._xy * decay + weight * x * y
        self._steps = self._steps * decay + steps
        self._seconds = self._seconds * decay + seconds
        self._coefficients = None

    @property
    def known(self) -> bool:
        """Whether any busy interval was seen."""
        return self._steps > 0

    def coefficients(self) -> tuple[float, float, float]:
        """(t0, seconds per new token, seconds per resident token), none negative."""
        if self._coefficients is None:
            self._coefficients = self._solve()
        t0, t1, t2 = self._coefficients
        return float(t0), float(t1) / 1e3, float(t2) / 1e5

    def _solve(self) -> np.ndarray:
        average = self._seconds / self._steps if self._steps else _IDLE_STEP
        active = [0, 1, 2]
        ridge = np.diag([1e-6, 1e-3, 1e-3]) * max(self._xx[0, 0], 1e-9)
        solution = np.zeros(3)
        while active:
            part = np.ix_(active, active)
            found = np.linalg.solve((self._xx + ridge)[part], self._xy[active])
            if (found >= 0).all():
                solution[active] = found
                break
            active = [k for k, value in zip(active, found, strict=True) if value > 0]
        if solution[0] <= 0:
            solution = np.array([average, 0.0, 0.0])
        return solution
