"""What the page shows beside the engines: the GPUs, the host's memory, the sources."""

from collections.abc import Sequence

from exporter.web.bars import legend, meter, stacked
from exporter.web.engines import state_chip, terms
from exporter.web.markup import Child, Markup, join, tag
from exporter.web.status import Device, Host, Source
from exporter.web.words import about, ago, growth, percent, size


def gpus(devices: Sequence[Device], sources: Sequence[Source]) -> Markup:
    """The GPUs as stacked bars, or why there is none."""
    if not devices:
        nvml = next((source for source in sources if source.source == "nvml"), None)
        why = nvml.message if nvml is not None and nvml.message else "GPUs are not watched"
        text = f"No GPU can be seen: {why.rstrip('.')}. What is said of the KV cache needs none."
        return tag("p", text, class_="quiet")
    single = len(devices) == 1
    bars = [_gpu(device, detailed=single) for device in devices]
    shared = None
    if not single:
        seen = {part.kind: part for device in devices for part in device.segments}
        shared = legend(tuple(seen.values()), sizes=False)
    return join(shared, tag("div", *bars, class_="gpus"))


def _gpu(device: Device, *, detailed: bool) -> Markup:
    name = f"GPU {device.gpu}"
    heading = tag(
        "h3",
        name,
        tag("small", f" {device.name}" if device.name else None, f" · {size(device.total_bytes)}"),
        state_chip(device.state) if device.state in ("watch", "predicted") else None,
    )
    if not device.segments:
        return tag("div", heading, tag("p", f"{device.reason}.", class_="quiet"), class_="gpu")
    until = device.time_to_exhaustion_seconds
    said = f"{size(device.headroom_bytes)} free for the next allocation; growth outside the pool: "
    said += growth(device.growth_bytes_per_second)
    if until is not None:
        said += f"; runs out in about {about(until)}"
    return tag(
        "div",
        heading,
        stacked(device.segments, name),
        legend(device.segments) if detailed else None,
        tag("p", f"{said}.", class_="quiet"),
        class_="gpu",
    )


def host_memory(host: Host) -> Markup:
    """The server's host memory."""
    used = host.used_bytes / host.limit_bytes if host.used_bytes is not None and host.limit_bytes else None
    limit = size(host.limit_bytes) if host.limit_bytes is not None else "no limit"
    rows: list[tuple[str, Child]] = [
        ("in use", f"{size(host.used_bytes)} of {limit}"),
        ("left", size(host.headroom_bytes)),
        ("growth", growth(host.growth_bytes_per_second)),
        ("OOM kills seen", "–" if host.oom_kills is None else str(host.oom_kills)),
    ]
    if host.probability is not None:
        rows.append(("probability of an OOM kill", percent(host.probability)))
    bar = meter(used, "host memory in use", host.state) if used is not None else None
    chip = state_chip(host.state) if host.state in ("watch", "predicted") else None
    return join(tag("p", chip, " " if chip else None, f"{host.reason}.", class_="quiet"), bar, terms(rows))


def source_list(sources: Sequence[Source]) -> Markup:
    """Every source with its health."""
    return tag("ul", *(_source(source) for source in sources), class_="sources")


def _source(source: Source) -> Markup:
    name = f"{source.source} {source.server}".strip()
    state = tag("strong", "up" if source.up else source.reason.replace("_", " "), class_=f"chip {_class(source)}")
    if source.up:
        seconds = source.duration_seconds
        took = "" if seconds is None else f", took {1000 * seconds:.0f} ms" if seconds >= 0.001 else ", took < 1 ms"
        read = f"read {ago(source.age_seconds)}{took}" if source.age_seconds is not None else source.message
        return tag("li", state, tag("b", name), tag("span", read))
    since = f" Last read {ago(source.age_seconds)}." if source.age_seconds is not None else ""
    return tag("li", state, tag("b", name), tag("span", f"{source.message.rstrip('.')}.{since}"))


def _class(source: Source) -> str:
    return "ok" if source.up else "watch"
