"""What vLLM's share of a GPU allows it: how far it is beyond that share, and whether a new start would find it free.

vLLM refuses to start unless `gpu_memory_utilization` × total is free, and fails where the weights leave nothing of that
share for KV cache. CUDA's total, of which it takes its share, is NVML's less what the driver reserves.
"""

from exporter.reading import DeviceReading

MORE, MOST = 0.03, 0.95


def over_budget(reading: DeviceReading, utilization: float | None) -> int | None:
    """Bytes used beyond `gpu_memory_utilization` of the card; negative while below, which is no error.

    Other processes' memory is not the server's and is left out where it is known.
    """
    if utilization is None or reading.used is None or reading.total is None:
        return None
    mine = reading.this_process if reading.this_process is not None else reading.used - (reading.other_processes or 0)
    return mine - int(utilization * cuda_total(reading.total, reading.reserved))


def next_start_bytes(reading: DeviceReading, utilization: float | None, weight_bytes: int | None) -> int | None:
    """Bytes to spare when the server starts next, before any KV cache; below 0 the start fails.

    The smaller of what others leave beyond the share and, where the weights are known, what they leave of the share.
    Only memory known to be another process's counts as taken: the server's own is free by then. `None` where the two
    cannot be told apart, and on a part that shares the machine's memory.
    """
    if utilization is None or reading.total is None or reading.other_processes is None or reading.unified:
        return None
    total = cuda_total(reading.total, reading.reserved)
    share = int(utilization * total)
    left = total - reading.other_processes - share
    return left if weight_bytes is None else min(left, share - weight_bytes)


def larger_share(utilization: float) -> float | None:
    """The next step of `gpu_memory_utilization`; `None` from 0.95 on: CUDA graphs and peaks need the rest."""
    return min(MOST, round(utilization + MORE, 2)) if utilization < MOST else None


def cuda_total(total: int, reserved: int | None) -> int:
    """What CUDA calls total, of NVML's total and what the driver reserves."""
    return total - (reserved or 0)
