"""Which of the visible GPUs are this server's, and by which rule that was decided.

The rules, the first that has an answer wins: configuration; the kubelet; the environment of the server's process;
the GPUs on which that process holds memory; else all that can be seen. Every GPU is known by its UUID: NVML counts
in PCI order, CUDA by default fastest first, and a container from zero, so an index alone means three things.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from exporter.errors import SourceError
from exporter.sources.device import Identity

Rule = Literal["configured", "pod_resources", "environment", "process_memory", "all_visible"]


@dataclass(frozen=True, slots=True)
class Ownership:
    """The server's GPUs. `notes` says, one sentence each, what the rules before the deciding one lacked."""

    devices: tuple[Identity, ...]
    rule: Rule
    detail: str
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of the server: each part is `None` where it could not be had, and `notes` says why."""

    pod_devices: frozenset[str] | None = None
    """Device ids the kubelet gave to the pod: `GPU-…`, `MIG-…`, `GPU-…::2` where GPUs are shared, `nvidia0` on GKE."""
    environment: Mapping[str, str] | None = None
    held_uuids: frozenset[str] | None = None
    notes: tuple[str, ...] = field(default_factory=tuple)


class _UndecidedError(Exception):
    """A rule has no answer; the message says why."""


def choose(devices: Sequence[Identity], wanted: Sequence[str], evidence: Evidence) -> Ownership:
    """The server's GPUs among `devices`; `wanted` is the setting: `auto`, or indices and UUIDs.

    Raises `SourceError` where a configured GPU is not there: watching another one instead would be worse than nothing.
    """
    if tuple(wanted) != ("auto",):
        return Ownership(_configured(devices, wanted), "configured", f"configured as {', '.join(wanted)}")
    notes = list(evidence.notes)
    rules: tuple[tuple[Rule, Callable[[], tuple[tuple[Identity, ...], str]]], ...] = (
        ("pod_resources", lambda: _pod_resources(devices, evidence.pod_devices)),
        ("environment", lambda: _environment(devices, evidence.environment)),
        ("process_memory", lambda: _process_memory(devices, evidence.held_uuids)),
    )
    for rule, decide in rules:
        try:
            chosen, detail = decide()
        except _UndecidedError as reason:
            if str(reason):
                notes.append(str(reason))
            continue
        return Ownership(chosen, rule, detail, tuple(notes))
    return Ownership(tuple(devices), "all_visible", "every GPU this process can see", tuple(notes))


def match(devices: Sequence[Identity], name: str) -> Identity | None:
    """The device called `name`: an index (`0`, `0:1` for a MIG slice), or a UUID or an unambiguous start of one."""
    for device in devices:
        index = str(device.index) if device.mig_index is None else f"{device.index}:{device.mig_index}"
        if name in (device.uuid, index):
            return device
    if name.startswith(("GPU-", "MIG-")) and len(name) > 4:
        alike = [device for device in devices if device.uuid.startswith(name)]
        return alike[0] if len(alike) == 1 else None
    return None


def _configured(devices: Sequence[Identity], wanted: Sequence[str]) -> tuple[Identity, ...]:
    chosen = {name: match(devices, name) for name in wanted}
    if absent := [name for name, device in chosen.items() if device is None]:
        there = ", ".join(device.uuid for device in devices) or "none"
        raise SourceError(
            "nvml",
            "gpu_not_found",
            f"GPU {', '.join(absent)} is configured but cannot be seen; visible: {there}. "
            "Set VLLM_HEADROOM_GPUS to one of these, or to auto.",
        )
    return tuple(dict.fromkeys(device for device in chosen.values() if device is not None))


def _pod_resources(devices: Sequence[Identity], ids: frozenset[str] | None) -> tuple[tuple[Identity, ...], str]:
    if ids is None:
        raise _UndecidedError
    if not ids:
        raise _UndecidedError("the kubelet gave this pod no GPU by a device plugin")
    names = {name.split("::")[0] for name in ids}
    by_minor = {f"nvidia{device.minor}": device for device in devices if device.minor is not None}
    found = {name: match(devices, name) or by_minor.get(name) for name in names}
    if absent := sorted(name for name, device in found.items() if device is None):
        raise _UndecidedError(f"the kubelet gave this pod {', '.join(absent)}, which cannot be seen from here")
    chosen = {device.uuid for device in found.values() if device is not None}
    return tuple(d for d in devices if d.uuid in chosen), "the kubelet's pod-resources list"


def _environment(
    devices: Sequence[Identity], environment: Mapping[str, str] | None
) -> tuple[tuple[Identity, ...], str]:
    if environment is None:
        raise _UndecidedError
    container = _nvidia_visible(devices, environment.get("NVIDIA_VISIBLE_DEVICES"))
    names = _cuda_names(environment.get("CUDA_VISIBLE_DEVICES"))
    if names is None:
        if container is None:
            raise _UndecidedError("the server's environment names no GPUs")
        return container, f"NVIDIA_VISIBLE_DEVICES={environment['NVIDIA_VISIBLE_DEVICES']} of the server's process"
    within = devices if container is None else container
    chosen = tuple(_cuda_device(within, name, environment.get("CUDA_DEVICE_ORDER")) for name in names)
    return chosen, f"CUDA_VISIBLE_DEVICES={environment['CUDA_VISIBLE_DEVICES']} of the server's process"


def _nvidia_visible(devices: Sequence[Identity], value: str | None) -> tuple[Identity, ...] | None:
    """The container's GPUs, or `None` where the variable does not tell (CDI sets it to `void`)."""
    if value is None or value.strip() in ("", "all", "void", "none"):
        return None
    chosen = [match(devices, name.strip()) for name in value.split(",") if name.strip()]
    if any(device is None for device in chosen):
        raise _UndecidedError(f"NVIDIA_VISIBLE_DEVICES={value} of the server names a GPU that cannot be seen from here")
    return tuple(device for device in chosen if device is not None)


def _cuda_names(value: str | None) -> list[str] | None:
    """The names CUDA takes: it stops at the first that is not valid. Unset or empty tells nothing here."""
    if value is None or not value.strip():
        return None
    names = []
    for name in value.split(","):
        if name.strip().startswith("-"):
            break
        names.append(name.strip())
    if not names:
        raise _UndecidedError(f"CUDA_VISIBLE_DEVICES={value} hides every GPU from the server")
    return names


def _cuda_device(devices: Sequence[Identity], name: str, order: str | None) -> Identity:
    if not (name.isascii() and name.isdigit() and len(name) < 10):
        if (device := match(devices, name)) is None:
            raise _UndecidedError(f"CUDA_VISIBLE_DEVICES names {name}, which cannot be seen from here")
        return device
    if order != "PCI_BUS_ID" and len({device.name for device in devices}) > 1:
        raise _UndecidedError(
            f"CUDA_VISIBLE_DEVICES names GPU {name} by index among GPUs of different kinds, and CUDA counts the "
            "fastest first: set CUDA_DEVICE_ORDER=PCI_BUS_ID, or name GPUs by UUID"
        )
    by_pci = sorted(devices, key=lambda device: (device.pci or "", device.index))
    if int(name) >= len(by_pci):
        raise _UndecidedError(f"CUDA_VISIBLE_DEVICES names GPU {name}, but only {len(by_pci)} can be seen from here")
    return by_pci[int(name)]


def _process_memory(devices: Sequence[Identity], held: frozenset[str] | None) -> tuple[tuple[Identity, ...], str]:
    if held is None:
        raise _UndecidedError
    chosen = tuple(device for device in devices if device.uuid in held)
    if not chosen:
        raise _UndecidedError("no GPU lists memory of the server's process")
    return chosen, "the GPUs on which the server's process holds memory"
