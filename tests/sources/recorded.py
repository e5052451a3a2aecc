"""A recording of `scripts/record-nvml`, answering as the GPU did."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from exporter.sources.device import Device, DeviceError, Identity, Memory
from exporter.sources.nvml import REASONS


class RecordedDevice:
    """One GPU or slice of a recording."""

    def __init__(self, entry: Mapping[str, Any], index: int, parent: str | None = None) -> None:
        self._entry = entry
        self.identity = Identity(
            index=index,
            uuid=entry["uuid"],
            name=entry["name"].get("value"),
            minor=entry["minor"].get("value"),
            mig_index=entry.get("slot"),
            parent_uuid=parent,
        )

    def memory(self) -> Memory:
        newer, older = self._entry["memory_v2"], self._entry["memory_v1"]
        value = newer.get("value") or _value(older)
        return Memory(value["total"], value["used"], value["free"], value.get("reserved"))

    def processes(self) -> Mapping[int, int | None]:
        newer, older = self._entry["processes_v3"], self._entry["processes_v2"]
        listed = _value(older if newer.get("error") == 13 else newer)
        return {process["pid"]: process["used"] for process in listed}


class Recording:
    """A library that shows what was recorded."""

    def __init__(self, path: Path) -> None:
        self.document: dict[str, Any] = json.loads(path.read_text())

    def open(self) -> None:
        """A file needs no driver."""

    def close(self) -> None:
        """Nor is there anything to give back."""

    def devices(self) -> Sequence[Device]:
        found: list[Device] = []
        for entry in self.document["devices"]:
            slices = [RecordedDevice(part, entry["index"], entry["uuid"]) for part in entry["slices"]]
            found += slices or [RecordedDevice(entry, entry["index"])]
        return found


def _value(answer: Mapping[str, Any]) -> Any:
    if "value" in answer:
        return answer["value"]
    raise DeviceError(REASONS.get(answer["error"], "unknown"))
