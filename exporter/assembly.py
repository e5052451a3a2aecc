"""From settings to a monitor: which parts there are and what each is given."""

import os
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from exporter.forecast.allocations import next_allocations
from exporter.forecast.assessment import ForecastOptions
from exporter.memory import DeviceWatch, HostWatch
from exporter.models import ServedModels
from exporter.monitor import Devices, Monitor
from exporter.reading import CacheConfig
from exporter.sources.gpu_evidence import GpuEvidence, Pod
from exporter.sources.host import HostSource
from exporter.sources.hub import HUB_URL, HubDownload
from exporter.sources.model_config import ModelConfig, find_model_config
from exporter.sources.nvml import NvmlSource
from exporter.sources.patience import Patience
from exporter.sources.server_process import ServerProcess
from exporter.sources.vllm import Access, VllmSource
from exporter.watch import ServerWatch

if TYPE_CHECKING:
    import httpx

    from exporter.kv.live import LiveArithmetic
    from exporter.settings import Settings

HOST_SECONDS = 2.0
"""Longest wait for the container's figures."""
LOOK_AGAIN_SECONDS = 30.0
"""How often the server's process is looked for where it is not seen: going through /proc costs more than a tick."""


def build_monitor(
    settings: "Settings",
    clock: Callable[[], float] = time.monotonic,
    wall: Callable[[], float] = time.time,
    *,
    devices: Devices | None = None,
    transport: "httpx.BaseTransport | None" = None,
) -> Monitor:
    """Every part of the daemon, wired; nothing is read before the first tick.

    `devices` stands in for NVML, `transport` for the network between here and vLLM.
    """
    watches = [_server(url, settings, clock, transport) for url in settings.vllm_url]
    ports = frozenset(_port(url) for url in settings.vllm_url)
    process = ServerProcess(settings.proc_dir, ports=ports, seconds=LOOK_AGAIN_SECONDS, clock=clock)
    memory = HostSource(process, proc=settings.proc_dir, cgroup=settings.cgroup_dir, pod_uid=os.environ.get("POD_UID"))
    if devices is None and settings.gpus != ("none",):
        devices = DeviceWatch(_gpus(settings, process, memory))
    # A file of the kernel's can block as long as a lock of the server's process is held.
    host = None if settings.host == "none" else HostWatch(Patience("host", memory.read, HOST_SECONDS))
    ranks = settings.tensor_parallel_size * settings.pipeline_parallel_size
    return Monitor(watches, devices, host, clock, wall, ranks)


def forecast_options(settings: "Settings") -> ForecastOptions:
    """What the user knows beyond the page, as the forecast takes it."""
    return ForecastOptions(
        horizons=settings.horizons_seconds,
        seed=settings.seed,
        max_num_seqs=settings.max_num_seqs,
        max_num_batched_tokens=settings.max_num_batched_tokens,
        max_model_len=settings.max_model_len,
        watermark=settings.watermark,
    )


def _server(
    url: str, settings: "Settings", clock: Callable[[], float], transport: "httpx.BaseTransport | None"
) -> ServerWatch:
    access = Access(
        timeout_seconds=settings.vllm_timeout_seconds,
        body_limit_bytes=settings.body_limit_bytes,
        api_key_file=settings.api_key_file,
        tls_ca_file=settings.tls_ca_file,
        tls_skip_verify=settings.tls_skip_verify,
    )
    source = VllmSource(url, access, settings.metric_prefixes, transport, clock)
    name = urlsplit(url).netloc if len(settings.vllm_url) > 1 else ""
    models, servers = _models(source, settings, name), len(settings.vllm_url)
    return ServerWatch(source, models, forecast_options(settings), clock, name, servers)


def _gpus(settings: "Settings", process: ServerProcess, memory: HostSource) -> NvmlSource:
    namespace, name = os.environ.get("POD_NAMESPACE"), os.environ.get("POD_NAME")
    pod = Pod(namespace, name) if namespace and name else None
    evidence = GpuEvidence(process, socket=settings.pod_resources_socket, pod=pod)
    return NvmlSource(settings.gpus, evidence=evidence, processes=process.view, machine=memory.machine)


def _models(source: VllmSource, settings: "Settings", name: str) -> ServedModels:
    environment = dict(os.environ)
    if settings.hf_home is not None:
        environment["HF_HOME"] = str(settings.hf_home)
    download = HubDownload(environment.get("HF_ENDPOINT", HUB_URL)) if settings.model_download else None

    def find(model_ids: tuple[str, ...]) -> ModelConfig:
        return find_model_config(
            model_ids, configured=settings.architecture_file, environment=environment, download=download
        )

    def derive(config: Mapping[str, Any], cache: CacheConfig, max_model_len: int | None) -> "LiveArithmetic":
        # Imported once there is a config: without one the arithmetic's modules are never needed.
        from exporter.kv.live import live_arithmetic

        return live_arithmetic(
            config,
            cache,
            max_model_len=max_model_len,
            tensor_parallel_size=settings.tensor_parallel_size,
            max_num_batched_tokens=settings.max_num_batched_tokens,
        )

    def allocations(config: Mapping[str, Any]) -> Mapping[str, int]:
        return next_allocations(
            config,
            max_num_batched_tokens=settings.max_num_batched_tokens,
            max_num_seqs=settings.max_num_seqs,
            tensor_parallel_size=settings.tensor_parallel_size,
            lora_rank=settings.max_lora_rank,
        )

    return ServedModels(
        source.read_models, find, derive, allocations, max_model_len=settings.max_model_len, server=name
    )


def _port(url: str) -> int:
    parts = urlsplit(url)
    return parts.port or (443 if parts.scheme == "https" else 80)
