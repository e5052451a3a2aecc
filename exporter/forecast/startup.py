"""Whether the next start of the server can work out on this card: what is left for KV, and what is left after it.

vLLM gives KV what `gpu_memory_utilization` × total leaves after weights, peak activations and what is not PyTorch's.
CUDA graphs are captured after that, outside the budget, and memory that others take meanwhile is charged to it.
"""

from dataclasses import dataclass

GRAPH_SHARE_SUSPECT = 0.25
"""An estimate of CUDA-graph memory beyond this share of the card is a fault of the estimate."""
HIGH_UTILIZATION = 0.97
SMALL_CARD_BYTES = 32 * 2**30
"""From this utilisation on, on cards up to this size, graph capture has been seen to fail."""
GRAPH_MARGIN = 1.15
"""Graphs take more than measured with a small pool: this much more is held back for them."""


@dataclass(frozen=True, slots=True)
class Start:
    """A start as planned, in bytes. `total` is CUDA's: NVML's less what the driver reserves.

    `weights`, `activation` and `non_torch` are as vLLM logs them; `others` is what other processes hold; `kv` is the
    pool where it is fixed (`kv_cache_memory_bytes`) or logged, else what the budget leaves.
    """

    total: int
    utilization: float
    weights: int
    activation: int = 0
    non_torch: int = 0
    graphs: int = 0
    others: int = 0
    kv: int | None = None
    others_grow: int = 0
    """What other processes take while this one measures itself: vLLM charges it to itself."""

    @property
    def budget(self) -> int:
        """What the server allows itself."""
        return int(self.total * self.utilization)

    @property
    def kv_bytes(self) -> int:
        """What is left for KV; negative is a deficit, and the start fails."""
        own = self.weights + self.activation + self.non_torch
        return self.kv if self.kv is not None else self.budget - own - self.others_grow

    @property
    def left_after_start(self) -> int:
        """What is free on the card once everything runs and a peak of activations is on; negative fails at run time."""
        taken = self.weights + self.activation + self.non_torch + self.graphs + self.others + self.others_grow
        return self.total - taken - max(0, self.kv_bytes)

    @property
    def graphs_suspect(self) -> bool:
        """Whether the estimate of graph memory cannot be right and should not be believed."""
        return suspect(self.graphs, self.total)

    @property
    def risky_utilization(self) -> bool:
        """Whether the budget leaves a small card too little for graphs and first requests."""
        return self.utilization >= HIGH_UTILIZATION and self.total <= SMALL_CARD_BYTES


def suspect(graphs: int, total: int) -> bool:
    """Whether an estimate of so many bytes for CUDA graphs on a card of so many is a fault of the estimate."""
    return graphs > GRAPH_SHARE_SUSPECT * total


def start_faults(start: Start) -> tuple[str, ...]:
    """Why the next start may fail, one sentence each; empty when nothing speaks against it."""
    gib, faults = 2**30, []
    if start.kv_bytes <= 0:
        whose = f", {start.others / gib:.1f} GiB of it held by other processes" if start.others else ""
        faults.append(
            f"the start fails: {-start.kv_bytes / gib:.2f} GiB are lacking before any KV cache{whose}. "
            "Raise gpu_memory_utilization if the card has room, or free the card"
        )
    if start.graphs_suspect:
        faults.append(
            f"the estimate of {start.graphs / gib:.1f} GiB for CUDA graphs is more than a quarter of the card: "
            "do not rely on it"
        )
    elif start.graphs > 0 and start.left_after_start + start.graphs < start.graphs * GRAPH_MARGIN:
        faults.append(
            "CUDA graphs may not fit: they lie outside the budget, so capture fewer sizes or use --enforce-eager; "
            "gpu_memory_utilization moves only what is left for KV"
        )
    if start.risky_utilization:
        faults.append(
            f"gpu_memory_utilization {start.utilization:g} leaves {(start.total - start.budget) / gib:.2f} GiB "
            "for CUDA graphs and all else: 0.96 or less is safer on a card of this size"
        )
    return tuple(faults)
