"""Run `doctor`: look at everything once, say what was seen, change nothing."""

import argparse
import os
import shutil
import sys
import time
from collections.abc import Sequence
from urllib.parse import urlsplit

from exporter.doctor.finding import Finding, as_json, as_table, has_fault
from exporter.doctor.gpu import gpu_findings
from exporter.doctor.host import host_findings, own_findings, process_findings
from exporter.doctor.page import page_findings
from exporter.doctor.server import Server, examine
from exporter.forecast.allocations import next_allocations
from exporter.settings import Settings, add_flags, load, unknown_variables
from exporter.sources.gpu_evidence import GpuEvidence, Pod
from exporter.sources.host import HostSource
from exporter.sources.nvml import NvmlSource, PynvmlLibrary
from exporter.sources.server_process import ServerProcess
from exporter.sources.vllm import Access, VllmSource


def run(argv: Sequence[str]) -> int:
    """Print what was found. Exit code 0: nothing is broken; 1: something is. A wrong setting raises `UsageError`."""
    parser = argparse.ArgumentParser(
        prog="vllm-headroom doctor",
        description="What can be seen from here, by which rule, what is missing, what that costs, and what to change.",
        allow_abbrev=False,
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    add_flags(parser)
    flags = vars(parser.parse_args(argv))
    findings = look(load(flags))
    if flags["json"]:
        sys.stdout.write(as_json(findings) + "\n")
    else:
        terminal = sys.stdout.isatty()
        width = min(120, shutil.get_terminal_size().columns) if terminal else 100
        sys.stdout.write(as_table(findings, colour=terminal and "NO_COLOR" not in os.environ, width=width) + "\n")
    return 1 if has_fault(findings) else 0


def look(settings: Settings) -> list[Finding]:
    """Everything that can be found with these settings, part by part."""
    findings = [
        Finding("settings", "warning", f"{name} is set but means nothing here", "", "", "is it misspelt?")
        for name in unknown_variables(os.environ)
    ]
    servers = [_server(url, settings) for url in settings.vllm_url]
    findings += [finding for server in servers for finding in server.findings]
    ports = frozenset(urlsplit(url).port or 80 for url in settings.vllm_url)
    process = ServerProcess(settings.proc_dir, ports=ports)
    memory = HostSource(process, proc=settings.proc_dir, cgroup=settings.cgroup_dir, pod_uid=os.environ.get("POD_UID"))
    now = time.monotonic()
    findings += process_findings(process)
    first = servers[0]
    if settings.gpus != ("none",):
        findings += _gpus(settings, process, memory, first, now)
    else:
        findings += gpu_findings(None, now)
    host = None if settings.host == "none" else memory.read(now)
    return findings + host_findings(host, first.offloading_gib) + page_findings(settings)


def _server(url: str, settings: Settings) -> Server:
    access = Access(
        timeout_seconds=settings.vllm_timeout_seconds,
        body_limit_bytes=settings.body_limit_bytes,
        api_key_file=settings.api_key_file,
        tls_ca_file=settings.tls_ca_file,
        tls_skip_verify=settings.tls_skip_verify,
    )
    source = VllmSource(url, access)
    try:
        return examine(url, source, settings)
    finally:
        source.close()


def _gpus(settings: Settings, process: ServerProcess, memory: HostSource, server: Server, now: float) -> list[Finding]:
    namespace, name = os.environ.get("POD_NAMESPACE"), os.environ.get("POD_NAME")
    pod = Pod(namespace, name) if namespace and name else None
    gather = GpuEvidence(process, socket=settings.pod_resources_socket, pod=pod)
    evidence = gather(now)
    note = next(iter(evidence.notes), "")
    found = own_findings(settings.pod_resources_socket, pod is not None, evidence.pod_devices, note)
    library = PynvmlLibrary()
    source = NvmlSource(settings.gpus, library=library, evidence=gather, processes=process.view, machine=memory.machine)
    allocations = next_allocations(
        server.config,
        max_num_batched_tokens=settings.max_num_batched_tokens,
        max_num_seqs=settings.max_num_seqs,
        tensor_parallel_size=settings.tensor_parallel_size,
        lora_rank=settings.max_lora_rank,
    )
    try:
        return found + gpu_findings(
            source, now, driver=library.driver_version, utilization=server.utilization, allocations=allocations
        )
    finally:
        source.close()
