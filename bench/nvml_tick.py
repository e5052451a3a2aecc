"""What one tick's reads of GPU and host memory cost.

    python -m bench.nvml_tick [--ticks 2000] [--stub] [--server-port PORT]

With a driver on this machine the real NVML is timed. With `--stub` (needs gcc) it is the tests' stub of the driver's
library instead: that times this project and pynvml alone, and says nothing about a GPU. Host memory is timed beside
the vLLM server of that port if one can be seen, else of the machine alone.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from exporter.errors import SourceError
from exporter.sources.host import HostSource
from exporter.sources.nvml import NvmlSource, PynvmlLibrary
from exporter.sources.server_process import ServerProcess


def timed(name: str, read: Callable[[float], object], ticks: int) -> None:
    """Print median, p99 and CPU time of `read`, called as a tick calls it."""
    read(0.0)
    walls = []
    begun = time.process_time()
    for tick in range(ticks):
        started = time.perf_counter()
        read(float(tick))
        walls.append(time.perf_counter() - started)
    cpu = (time.process_time() - begun) / ticks
    p99 = statistics.quantiles(walls, n=100)[98]
    print(
        f"{name}: median {statistics.median(walls) * 1e3:.3f} ms, p99 {p99 * 1e3:.3f} ms, CPU {cpu * 1e3:.3f} ms a tick"
    )


def with_stub() -> None:
    """Start again with the stub in the library path."""
    from tests.nvml_stub.stub import build

    directory = build(Path(tempfile.mkdtemp()), "WITH_CARD")
    os.environ["LD_LIBRARY_PATH"] = str(directory)
    os.execv(sys.executable, [sys.executable, "-m", "bench.nvml_tick", *(a for a in sys.argv[1:] if a != "--stub")])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ticks", type=int, default=2000)
    parser.add_argument("--stub", action="store_true")
    parser.add_argument("--server-port", type=int, default=8000)
    options = parser.parse_args()
    if options.stub:
        with_stub()
    process = ServerProcess(ports=frozenset({options.server_port}))
    memory = HostSource(process)
    library = PynvmlLibrary()
    source = NvmlSource(library=library, processes=process.view, machine=memory.machine)
    try:
        readings = source.read(0.0)
    except SourceError as error:
        print(f"NVML: not measured. {error}")
    else:
        names = ", ".join(str(reading.name) for reading in readings)
        print(f"driver {library.driver_version()}, {len(readings)} GPU(s): {names}")
        timed("NVML", source.read, options.ticks)
        source.close()
    print(f"host memory by: {memory.read(0.0).rule}")
    timed("host", memory.read, options.ticks)


if __name__ == "__main__":
    main()
