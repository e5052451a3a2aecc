"""Cells of time, and what many roll-outs' requests hold at the end of each.

A request holds its prompt from its start and grows steadily until it ends, so that a pool's level is a sum of ramps:
starts and ends are counted into cells, and a cumulative sum gives all levels without a loop over time.
"""

import numpy as np
from numpy.typing import NDArray

from exporter.forecast.lengths import Floats


class Grid:
    """Cells of `fine` seconds up to `turn`, of `coarse` ones, so many fine ones each, up to `end`.

    One more cell holds what comes later.
    """

    def __init__(self, turn: float = 60.0, end: float = 120.0, fine: float = 1.0, coarse: int = 5) -> None:
        """Edges are the ends of the cells."""
        self.fine = fine
        self.fine_cells = round(turn / fine)
        coarse_cells = max(0, round((end - turn) / (fine * coarse)))
        self.cells = self.fine_cells + coarse_cells
        self.widths = np.repeat((fine, fine * coarse), (self.fine_cells, coarse_cells))
        self.times = np.cumsum(self.widths)
        wide = np.repeat((1, coarse, 1), (self.fine_cells, coarse_cells, 1))
        self._cell_of_fine = np.repeat(np.arange(self.cells + 1), wide)

    def cell(self, time: Floats) -> NDArray[np.intp]:
        """The cell each time falls into; `cells` for times beyond the grid."""
        last = len(self._cell_of_fine) - 1
        fine: NDArray[np.intp] = np.minimum(time if self.fine == 1.0 else time / self.fine, last).astype(np.intp)
        return self._cell_of_fine.take(fine)


class Level:
    """Ramps summed on a grid, for so many roll-outs."""

    def __init__(self, grid: Grid, rollouts: int) -> None:
        self._grid, self._rollouts = grid, rollouts
        self._width = grid.cells + 1
        self.row = np.arange(rollouts) * self._width
        """Where each roll-out's cells begin."""

    def sums(self, cells: NDArray[np.intp], values: Floats | None = None) -> Floats:
        """(R, G) how many events, or how much of their `values`, fall into each cell."""
        found: Floats = np.bincount(cells, values, self._rollouts * self._width).astype(np.float64, copy=False)
        return found.reshape(self._rollouts, self._width)[:, :-1]

    def count(self, begin: NDArray[np.intp], end: NDArray[np.intp]) -> Floats:
        """(R, G) how many have begun and not ended by the end of each cell."""
        return np.cumsum(self.sums(begin) - self.sums(end), axis=1)

    def ramps(
        self, alive: Floats, growth: Floats, ends: NDArray[np.intp], last: Floats, first: Floats | float
    ) -> Floats:
        """(R, G) what `alive` (R, G) requests hold: their `first` blocks, growth, less the `last` of each that ends."""
        return np.cumsum(first + alive * self._grid.widths * growth[:, None] - self.sums(ends, last), axis=1)
