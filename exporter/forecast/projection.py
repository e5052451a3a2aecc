"""What the roll-outs of one reading come to."""

from dataclasses import dataclass, replace

from exporter.forecast.rollout import Load
from exporter.forecast.schedule import Engine


@dataclass(frozen=True, slots=True)
class Projection:
    """One roll-out's summary.

    `shares`: seconds → share of roll-outs exhausted by then. `median_peak`: of the highest demand over capacity
    within a minute. `demand`: (horizon, quantile) → demand over capacity. `offered_load`: in the long run. `load` is
    what was rolled; it is most of what an engine takes, so it is let go of once the levers are tried on it.
    """

    shares: dict[float, float]
    median_peak: float
    demand: dict[tuple[float, float], float]
    offered_load: float | None
    engine: Engine
    load: Load | None

    def after(self, before: "Projection") -> "Projection":
        """The mean of it and of the seconds before, each half as heavy as the next: what differs is mostly chance."""
        shares = {seconds: (share + before.shares[seconds]) / 2 for seconds, share in self.shares.items()}
        return replace(self, shares=shares, median_peak=(self.median_peak + before.median_peak) / 2)
