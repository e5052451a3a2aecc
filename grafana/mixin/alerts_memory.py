"""Alerts about memory outside the KV pool: a GPU that is full ends the engine, a container that is full is killed."""

from grafana.mixin.rules import BLIND_POD, BY_GPU, SCRAPE, WHERE, Alert, Group, number
from grafana.mixin.thresholds import Thresholds

_CARD = "GPU {{ $labels.gpu }} of " + WHERE

_FREE = number("vllm_headroom_device_bytes", "humanize1024") + "B"
_GROWTH = number("vllm_headroom_device_growth_bytes_per_second", "humanize1024") + "B/s"
_OTHERS = number('vllm_headroom_device_memory_bytes{kind="other_processes"}', "humanize1024") + "B"
_DEVICE_PROBABILITY = number(
    'vllm_headroom_oom_probability{risk="device",horizon_seconds="3600"}', "humanizePercentage"
)
_DEVICE_SECONDS = number('vllm_headroom_time_to_exhaustion_seconds{risk="device"}', "humanizeDuration")

_HOST_FREE = number("vllm_headroom_host_bytes", "humanize1024") + "B"
_HOST_LIMIT = number('vllm_headroom_host_memory_bytes{kind="limit"}', "humanize1024", "what the machine has", "B")
_HOST_GROWTH = number("vllm_headroom_host_growth_bytes_per_second", "humanize1024") + "B/s"
_HOST_SECONDS = number('vllm_headroom_time_to_exhaustion_seconds{risk="host"}', "humanizeDuration")

_FREE_THE_GPU = (
    "First: move new requests to another replica and restart this one at a quiet moment with --gpu-memory-utilization "
    "0.02 lower (cost: a smaller KV pool, and the load time). If other processes hold memory on the card, stop or move "
    "them instead (cost: theirs). Against spikes of prefill: a lower --max-num-batched-tokens (cost: slower first tokens)."
)


def group(t: Thresholds) -> Group:
    """The alerts of GPU and container memory."""
    largest = "max without (what) (vllm_headroom_device_next_allocation_bytes)"
    return Group(
        "memory",
        "15s",
        (
            Alert(
                "DeviceMemoryLow",
                "warning",
                f"""
                # level: the largest plausible next allocation does not fit
                vllm_headroom_device_bytes < {largest}
                # trend: it was more within the hour; a card that is full and steady is as it was set up
                and vllm_headroom_device_bytes
                  < {t.device_fallen_ratio} * max_over_time(vllm_headroom_device_bytes[1h])
                # exclusion: a part that shares the machine's memory is the host's risk
                unless vllm_headroom_device_unified == 1
                # exclusion: a server that is down or loads takes what it needs
                unless ignoring (gpu, uuid, source) {BLIND_POD}
                """,
                summary=_CARD + " has less free memory than its next allocation may take",
                evidence="{{ $value | humanize1024 }}B free outside the KV pool and less than within the last hour; growth "
                + _GROWTH
                + "; other processes hold "
                + _OTHERS
                + ".",
                impact="The next long prefill or logprobs request can fail with CUDA out of memory, which ends the engine.",
                action=_FREE_THE_GPU,
                by=BY_GPU,
                hold="5m",
            ),
            Alert(
                "DeviceOOMPredicted",
                "critical",
                f"""
                vllm_headroom_oom_predicted{{risk="device"}} == 1
                # level and trend are in the prediction: growth since warm-up against what is left
                unless ignoring (risk) vllm_headroom_device_unified == 1
                # exclusion: a server that is down or loads takes what it needs
                unless ignoring (risk, gpu, uuid, source) {BLIND_POD}
                """,
                summary=_CARD + " is predicted to run out of memory",
                evidence="Probability "
                + _DEVICE_PROBABILITY
                + " within the hour, expected in "
                + _DEVICE_SECONDS
                + "; "
                + _FREE
                + " free outside the KV pool, growing by "
                + _GROWTH
                + "; other processes hold "
                + _OTHERS
                + ". The KV pool is static, so this is not KV.",
                impact="CUDA out of memory ends the engine and every request in it; loading the model again takes minutes.",
                action=_FREE_THE_GPU,
                by=BY_GPU,
                hold="15s",
            ),
            Alert(
                "NextStartFails",
                "warning",
                """
                # level: other processes hold the share vLLM asks for at its start, or the weights leave nothing of it
                vllm_headroom_device_next_start_bytes < 0
                """,
                summary="The server of " + WHERE + " would not start again on GPU {{ $labels.gpu }}",
                evidence="A new start would have {{ $value | humanize1024 }}B to spare before any KV cache; other processes hold "
                + _OTHERS
                + ".",
                impact="What runs goes on; after the next restart, rollout or crash the server fails at its start again "
                "and again until the card has room.",
                action="First: stop or move the other process on the card (cost: theirs). Otherwise lower "
                "--gpu-memory-utilization to what they leave, before the next restart (cost: a smaller KV pool).",
                by=BY_GPU,
                hold="10m",
            ),
            Alert(
                "HostOOMPredicted",
                "critical",
                f"""
                # trend
                vllm_headroom_oom_predicted{{risk="host"}} == 1
                # level: of the container's limit, or of the machine where there is none
                and ignoring (risk) vllm_headroom_host_bytes
                  < {t.host_left_ratio} * min without (kind) (vllm_headroom_host_memory_bytes{{kind=~"limit|machine_total"}})
                # exclusion: a server that is down or loads takes what it needs
                unless ignoring (risk, source) {BLIND_POD}
                """,
                summary="The container of " + WHERE + " is predicted to run out of host memory",
                evidence=_HOST_FREE
                + " left of "
                + _HOST_LIMIT
                + ", growing by "
                + _HOST_GROWTH
                + ", expected to end in "
                + _HOST_SECONDS
                + ".",
                impact="The kernel kills the server (OOMKilled, exit code 137): every request is lost and the model "
                "loads again.",
                action="First: raise the container's memory limit (cost: room on the node, and a restart). With KV "
                "offloading, lower --kv-offloading-size: it takes about twice its figure (cost: fewer prefix "
                "hits). For good: find what grows in the dashboard's row 'The host'.",
                by=SCRAPE,
                hold="15s",
            ),
            Alert(
                "ContainerOOMKilled",
                "critical",
                """
                increase(vllm_headroom_host_oom_kills_total[10m]) > 0
                """,
                summary="The kernel killed a process of " + WHERE + " for want of memory",
                evidence="Kills since the monitor started: "
                + number("vllm_headroom_host_oom_kills_total", '"%.0f"')
                + "; memory limit "
                + _HOST_LIMIT
                + ", "
                + _HOST_FREE
                + " left now.",
                impact="If it was the engine, every request it held is lost and the model is loading again; if it was a "
                "worker, the engine may hang. It will happen again when the same memory is reached.",
                action="First: check that the server is back (/health), then raise the container's memory limit (cost: "
                "room on the node, and a restart) or lower --kv-offloading-size where it is set (cost: fewer "
                "prefix hits).",
                by=SCRAPE,
            ),
        ),
    )
