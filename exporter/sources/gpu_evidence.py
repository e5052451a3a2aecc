"""What can be learnt about the server's GPUs from the kubelet and from the server's own environment."""

from dataclasses import dataclass
from pathlib import Path

from exporter.errors import SourceError
from exporter.sources.gpu_owner import Evidence
from exporter.sources.pod_resources import pod_devices
from exporter.sources.server_process import ServerProcess

_VARIABLES = ("NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES", "CUDA_DEVICE_ORDER")


@dataclass(frozen=True, slots=True)
class Pod:
    """The pod's own name, from the downward API."""

    namespace: str
    name: str


class GpuEvidence:
    """Gathers evidence each time it is called; the kubelet is asked until it tells, since its answer never changes.

    `socket` is the kubelet's pod-resources socket where it is mounted, `pod` the pod's name where it is known.
    """

    def __init__(self, server: ServerProcess, *, socket: Path | None = None, pod: Pod | None = None) -> None:
        self._server = server
        self._socket = socket
        self._pod = pod
        self._given: frozenset[str] | None = None

    def __call__(self, _now: float) -> Evidence:
        """The evidence of now; nothing in it is guessed, and every gap has its note."""
        notes: list[str] = []
        given = self._pod_devices(notes)
        environment = None
        try:
            everything = self._server.environment()
            environment = {name: everything[name] for name in _VARIABLES if name in everything}
        except ProcessLookupError:
            notes.append("no process of the server can be seen: set shareProcessNamespace: true on the pod")
        except OSError:
            notes.append("the environment of the server's process may not be read: run the exporter as the same user")
        return Evidence(given, environment, None, tuple(notes))

    def _pod_devices(self, notes: list[str]) -> frozenset[str] | None:
        if self._given is not None:
            return self._given
        if self._socket is None:
            notes.append("the kubelet's pod-resources socket is not configured")
        elif self._pod is None:
            notes.append("the pod's name is not known: pass POD_NAME and POD_NAMESPACE by the downward API")
        else:
            try:
                self._given = pod_devices(self._socket, self._pod.namespace, self._pod.name)
            except SourceError as error:
                notes.append(str(error))
        return self._given
