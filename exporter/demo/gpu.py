"""An embedded GPU: what NVML would say of a card that holds the embedded engine's model and pool."""

from collections.abc import Mapping, Sequence

from exporter.sources.device import Device, Identity, Memory

MIB = 2**20

TOTAL = 24564 * MIB
RESERVED = 450 * MIB
CONTEXT = 520 * MIB
"""What the driver keeps for a process before it asks for anything."""
WEIGHTS = 8_030_261_248 * 2
ACTIVATIONS = 1150 * MIB
BLOCK = 16 * 131_072
"""Bytes of one block of 16 tokens of Llama-3.1 8B in 16 bits."""


class DemoGpu:
    """One card, shaped as a GeForce RTX 4090 with Llama-3.1 8B; nothing on it ever grows."""

    def __init__(self, index: int, num_gpu_blocks: int, pid: int) -> None:
        self.identity = Identity(
            index=index,
            uuid=f"GPU-demo0000-0000-0000-0000-{index:012x}",
            name="NVIDIA GeForce RTX 4090 (embedded)",
            pci=f"00000000:{index + 1:02X}:00.0",
            minor=index,
        )
        self._held = CONTEXT + WEIGHTS + ACTIVATIONS + num_gpu_blocks * BLOCK
        self._pid = pid

    def memory(self) -> Memory:
        """Weights, pool, activations and context are used; the rest is free."""
        return Memory(total=TOTAL, used=self._held, free=TOTAL - RESERVED - self._held, reserved=RESERVED)

    def processes(self) -> Mapping[int, int | None]:
        """The engine alone."""
        return {self._pid: self._held}


class DemoGpus:
    """A library, as NVML is one, of one card for each engine."""

    def __init__(self, blocks: Sequence[int], pid: int) -> None:
        self._devices = tuple(DemoGpu(index, count, pid) for index, count in enumerate(blocks))

    def open(self) -> None:
        """There is nothing to load."""

    def close(self) -> None:
        """There is nothing to give back."""

    def devices(self) -> Sequence[Device]:
        """The cards in order."""
        return self._devices
