"""What the status page costs: memory of the page with its history, and CPU of a page that stays open.

    python -m bench.status_page [--engines 1] [--seconds 60]

Memory: resident memory of a process that has what the daemon has without them, then once 15 minutes of history, the
page, the document and their code have been added. CPU: a process that ticks once a second and serves, with a Chromium
that has the page open and without, over the same time; the difference is what the open page adds. The times of one
rendering follow. Everything is measured on this machine while the script runs; needs Debian's chromium.
"""

import argparse
import multiprocessing
import os
import shutil
import threading
import time
import urllib.request
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from exporter.snapshot import Snapshot
from tests.support.snapshots import full_device, full_engine, full_host


def resident_bytes() -> int:
    """Resident memory of this process."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def snapshots(engines: int) -> Callable[[int], Any]:
    """A maker of snapshots: second → what a tick would have seen of so many engines."""
    made = [full_engine(str(number)) for number in range(engines)]
    devices, memory = (full_device(),) * engines, full_host()

    def at(second: int) -> Snapshot:
        seen = []
        for number, status in enumerate(made):
            usage = ((second * 7 + number * 131) % 1000) / 1000
            reading = replace(status.reading, time=float(second), kv_usage=usage, preemptions=float(second // 30))
            seen.append(replace(status, reading=reading))
        return Snapshot(float(second), 1.8e9 + second, 0.009, second, tuple(seen), devices, memory)

    return at


def memory(engines: int, out: Any) -> None:
    """Bytes added by history, page and document, in a process that holds the rest already."""
    import exporter.assembly
    import exporter.metrics
    import exporter.server

    at = snapshots(engines)
    latest = at(900)
    before = resident_bytes()
    from exporter.history import History
    from exporter.web.handlers import StatusPages

    history = History()
    imported = resident_bytes()
    for second in range(901):
        history.add(at(second))
    filled = resident_bytes()
    pages = StatusPages(lambda: latest, history, lambda: latest.time + 0.1, 8.0)
    request = exporter.server.Request("GET", "/", "", {})
    for second in range(901, 931):
        latest = at(second)
        history.add(latest)
        page = pages.page(request)
    shown = resident_bytes()
    for second in range(931, 961):
        latest = at(second)
        history.add(latest)
        document = pages.document(request)
        pages.page(request)
    told = resident_bytes()
    began, count = time.process_time(), 100
    for second in range(961, 961 + count):
        latest = at(second)
        history.add(latest)
        pages.page(request)
    each = (time.process_time() - began) / count
    sizes = len(page.body), len(document.body)
    out.put((imported - before, filled - imported, shown - filled, told - shown, *sizes, each))


def serve(engines: int, url: Any, done: Any, out: Any) -> None:
    """Tick once a second and serve until told to stop; then tell the CPU seconds since the first tick."""
    from exporter.history import History
    from exporter.routes import Routes
    from exporter.server import HttpServer

    at, history = snapshots(engines), History()
    for second in range(900):
        history.add(at(second))
    latest = at(900)
    with HttpServer("127.0.0.1", 0, Routes(lambda: latest, history, lambda: latest.time + 0.1, 8.0)) as server:
        urllib.request.urlopen(server.url + "/").read()  # the first page imports what draws it: once, not by the second
        url.put(server.url)
        second, began, started = 901, time.process_time(), time.monotonic()
        while not done.is_set():
            latest = at(second)
            history.add(latest)
            second += 1
            done.wait(1.0)
        out.put((time.process_time() - began, time.monotonic() - started))


def cpu(engines: int, seconds: float, *, watched: bool) -> float:
    """Share of a core the serving process takes, with the page open in a browser or without."""
    context = multiprocessing.get_context("spawn")
    url, out, done = context.Queue(), context.Queue(), context.Event()
    process = context.Process(target=serve, args=(engines, url, done, out))
    process.start()
    where = url.get(timeout=60)
    if watched:
        from playwright.sync_api import sync_playwright

        with sync_playwright() as playwright:
            flags = ["--no-sandbox", "--disable-gpu"]
            browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=flags)
            page = browser.new_page()
            answers: list[int] = []
            page.on("response", lambda answer: answers.append(answer.status))
            page.goto(where)
            page.wait_for_timeout(1000 * seconds)
            browser.close()
        print(f"  the page asked {len(answers)} times in {seconds:.0f} s")
    else:
        threading.Event().wait(seconds)
    done.set()
    used, wall = out.get(timeout=30)
    process.join()
    return float(used / wall)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--engines", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60.0)
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    out = context.Queue()
    process = context.Process(target=memory, args=(options.engines, out))
    process.start()
    imported, filled, shown, told, page, document, each = out.get(timeout=120)
    process.join()
    mib = 2**20
    print(f"{options.engines} engine(s)")
    print(f"memory: code {imported / mib:.2f} MiB, history of 15 min {filled / mib:.2f}, page {shown / mib:.2f},")
    print(f"  document {told / mib:.2f}; together {(imported + filled + shown + told) / mib:.2f} MiB")
    print(f"page {page / 1000:.0f} kB, document {document / 1000:.0f} kB; one page takes {1000 * each:.1f} ms of CPU")
    alone = cpu(options.engines, options.seconds, watched=False)
    open_page = cpu(options.engines, options.seconds, watched=True)
    print(f"CPU: {100 * alone:.2f} % of a core without a page open, {100 * open_page:.2f} % with one;")
    print(f"  an open page adds {100 * (open_page - alone):.2f} %")


if __name__ == "__main__":
    main()
