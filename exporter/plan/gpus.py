"""Current NVIDIA parts and the bytes that CUDA reports for them, which are fewer than those on the box.

Figures are what `torch.cuda.get_device_properties().total_memory` shows, to the hundredth of a GiB, as reported in
vLLM start-up logs and by the drivers of 2025 and 2026; a driver may differ by a fraction of a percent.
"""

from exporter.errors import InputError

_GIB = 2**30
_TABLE: dict[str, float] = {
    "A10": 22.06,
    "A10G": 21.98,
    "A16": 14.54,
    "A30": 23.6,
    "A40": 44.99,
    "A100-40GB": 39.38,
    "A100-80GB": 79.25,
    "A6000": 47.43,
    "B200": 178.35,
    "B300": 267.68,
    "GB10": 119.69,
    "GB200": 184.31,
    "GB300": 276.62,
    "GH200-96GB": 94.5,
    "GH200-144GB": 142.5,
    "H20": 95.0,
    "H100": 79.18,
    "H100-NVL": 93.11,
    "H100-PCIE": 79.18,
    "H200": 139.8,
    "L4": 22.03,
    "L40": 44.39,
    "L40S": 44.42,
    "RTX-3090": 23.58,
    "RTX-4060": 7.75,
    "RTX-4070": 11.72,
    "RTX-4080": 15.7,
    "RTX-4090": 23.53,
    "RTX-5070-TI": 15.47,
    "RTX-5080": 15.47,
    "RTX-5090": 31.38,
    "RTX-6000-ADA": 47.5,
    "RTX-PRO-4500": 31.38,
    "RTX-PRO-6000": 94.97,
    "T4": 14.57,
    "V100-16GB": 15.77,
    "V100-32GB": 31.73,
}
_ALIASES = {
    "A100": "A100-80GB",
    "A100-40": "A100-40GB",
    "A100-80": "A100-80GB",
    "GH200": "GH200-96GB",
    "H100-80GB": "H100",
    "H100-SXM": "H100",
    "DGX-SPARK": "GB10",
    "RTX-A6000": "A6000",
    "V100": "V100-32GB",
    "3090": "RTX-3090",
    "4090": "RTX-4090",
    "5090": "RTX-5090",
}


def gpu_bytes(name: str) -> tuple[str, int]:
    """(the part's name in the table, usable bytes). Raises `InputError` with the names there are."""
    key = name.upper().replace("NVIDIA", "").replace("GEFORCE", "").strip().replace(" ", "-").replace("_", "-")
    key = _ALIASES.get(key, key)
    for candidate in (key, key.replace("-80GB", ""), key.replace("-HBM3", "").replace("-80GB", "")):
        if candidate in _TABLE:
            return candidate, round(_TABLE[candidate] * _GIB)
    raise InputError(f"--gpu {name}: not in the table; pass --gpu-memory-bytes, or one of {', '.join(_TABLE)}")


def gpu_names() -> tuple[str, ...]:
    """Every name in the table."""
    return tuple(_TABLE)
