"""Fake GPUs behind the Device protocol."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from exporter.sources.device import Device, DeviceError, Identity, Memory

GIB = 2**30


@dataclass
class FakeDevice:
    """A device that answers with what it holds; a reason in place of an answer is raised."""

    identity: Identity
    says: Memory | str
    holds: Mapping[int, int | None] | str = field(default_factory=dict)

    def memory(self) -> Memory:
        if isinstance(self.says, str):
            raise DeviceError(self.says)
        return self.says

    def processes(self) -> Mapping[int, int | None]:
        if isinstance(self.holds, str):
            raise DeviceError(self.holds)
        return self.holds


class FakeLibrary:
    """A library of fake devices that counts how often it is opened and closed."""

    def __init__(self, *devices: FakeDevice) -> None:
        self.shown: list[FakeDevice] = list(devices)
        self.refusal: str | None = None
        self.tried = 0
        self.opened = 0
        self.closed = 0

    def open(self) -> None:
        self.tried += 1
        if self.refusal:
            raise DeviceError(self.refusal)
        self.opened += 1

    def close(self) -> None:
        self.closed += 1

    def devices(self) -> Sequence[Device]:
        return list(self.shown)


def gpu(index: int = 0, used: int = 70 * GIB) -> FakeDevice:
    return FakeDevice(Identity(index, f"GPU-{index}"), Memory(80 * GIB, used, 80 * GIB - used))
