"""What is found about a vLLM server, from its page and about its model."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from exporter.capacity import capacity_of
from exporter.doctor.finding import Finding, Level
from exporter.errors import SourceError
from exporter.reading import EngineReading
from exporter.settings import Settings
from exporter.sources.model_config import find_model_config
from exporter.sources.vllm import ServedModel, VllmSource

_NEEDED = {
    "kv_usage": "how full the KV pool is, and every forecast of it",
    "running": "the size of the load, and stalled engines",
    "waiting": "the queue: bursts are seen later",
    "preemptions": "the preemption rate, and whether forecasts came true",
    "generation_tokens": "decode rates, and engines that stand still",
    "prompt_lengths": "how long requests are: the forecast falls back to averages",
}
_CHANGES: Mapping[str, str] = {
    "refused": "VLLM_HEADROOM_VLLM_URL: in a sidecar http://127.0.0.1:<vLLM's --port>; is the server up?",
    "http_401": "VLLM_HEADROOM_API_KEY_FILE: a file with the key that vLLM was started with",
    "http_403": "VLLM_HEADROOM_API_KEY_FILE: a file with the key that vLLM was started with",
    "http_404": "VLLM_HEADROOM_VLLM_URL: the base URL, without /metrics",
    "timeout": "VLLM_HEADROOM_VLLM_TIMEOUT_SECONDS, if the server is that slow under load",
}


@dataclass(frozen=True, slots=True)
class Server:
    """What the doctor learnt of a server, for the other parts."""

    findings: list[Finding]
    utilization: float | None = None
    offloading_gib: float | None = None
    config: Mapping[str, Any] = field(default_factory=dict)


def examine(url: str, source: VllmSource, settings: Settings) -> Server:
    """Read everything that the server answers, once."""
    part = "vLLM"
    try:
        page = source.read()
    except SourceError as error:
        cost = "everything about the KV pool is unknown"
        return Server([Finding(part, "fault", str(error), "", cost, _CHANGES.get(error.reason, ""))])
    seen = f"{url}: {len(page.engines)} engine{'s' if len(page.engines) != 1 else ''}{_version(source)}"
    size = f"a page of {page.size_bytes / 1000:,.0f} kB, read in {page.duration_seconds * 1000:,.0f} ms"
    findings = [Finding(part, "ok", f"{seen}; {size}")]
    findings += [finding for engine in page.engines for finding in _engine(part, engine)]
    absent = [concept for concept in _NEEDED if concept not in page.names]
    findings += [Finding(part, "missing", f"{name} is not on the page", "", _NEEDED[name]) for name in absent]
    caches = [engine.cache for engine in page.engines if engine.cache is not None]
    config, found = _model(source, settings)
    offloading = [cache.kv_offloading_gib for cache in caches if cache.kv_offloading_gib]
    return Server(
        findings + found,
        next((cache.gpu_memory_utilization for cache in caches if cache.gpu_memory_utilization), None),
        sum(offloading) if offloading else None,
        config,
    )


def _version(source: VllmSource) -> str:
    try:
        return f" of vLLM {source.read_version()}"
    except SourceError:
        return ""


def _engine(part: str, engine: EngineReading) -> list[Finding]:
    capacity = capacity_of(engine.cache, None, None)
    name = f"{engine.model_name}, engine {engine.engine}"
    if capacity.tokens is None:
        cost = "headroom in tokens needs the model's config.json"
        return [Finding(part, "missing", f"{name}: the page does not say how large the KV pool is", "", cost)]
    rules = {"reported": "kv_cache_size_tokens on the page", "blocks": "num_gpu_blocks × block_size"}
    rule = rules.get(capacity.tokens_rule or "", capacity.tokens_rule or "")
    level: Level = "ok" if capacity.tokens_rule == "reported" else "note"
    cost = "" if level == "ok" else "wrong for models with several kinds of layers unless config.json is found"
    return [Finding(part, level, f"{name}: {capacity.tokens:,} tokens of KV cache", rule, cost)]


def _model(source: VllmSource, settings: Settings) -> tuple[Mapping[str, Any], list[Finding]]:
    part = "model"
    try:
        served: tuple[ServedModel, ...] = source.read_models()
    except SourceError as error:
        served = ()
        note = [Finding(part, "missing", str(error), "", "the model's length limit and its config are not looked up")]
    else:
        note = []
    bases = [model for model in served if model.parent is None]
    names = tuple(name for model in bases for name in (model.root, model.id) if name)
    environment = dict(os.environ) | ({"HF_HOME": str(settings.hf_home)} if settings.hf_home else {})
    found = find_model_config(names, configured=settings.architecture_file, environment=environment)
    if found.config is None:
        finding = Finding(
            part,
            "missing",
            found.reason,
            "",
            "no arithmetic of its KV, no next allocations, and hybrid models are estimated",
            "mount the model's directory read-only at the path vLLM uses, or set VLLM_HEADROOM_MODEL_CONFIG",
        )
        return {}, [*note, finding]
    kind = found.config.get("model_type", "unknown")
    return found.config, [*note, Finding(part, "ok", f"{found.path}: model_type {kind}", found.origin)]
