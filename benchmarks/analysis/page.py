# SPDX-License-Identifier: Apache-2.0
"""The first page of each table in the browser after a restart: `python -m benchmarks.analysis.page CAPTURE`.

The capture has a store (`stepscope info CAPTURE` makes one). Each table is asked for in a process of its own, which opens the
capture first; CPU and wall time of the opening and of the first page, in ms.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from pathlib import Path

TABLES = ("operators", "kernels", "kernels/calls", "memory/events", "distributed/ops", "modules", "findings")


def measure(capture: Path, route: str) -> dict[str, object]:
    """Open the capture as the server does, ask for the first page."""
    from werkzeug.test import Client

    from stepscope.web.app import App
    from stepscope.web.catalogue import Catalogue

    began, cpu = time.perf_counter(), time.process_time()
    catalogue = Catalogue([capture])
    client = Client(App(catalogue))
    catalogue.scan()
    (entry,) = catalogue.entries()
    loaded = catalogue.load(entry).result()
    named = {name: getattr(entry.location, name) for name in ("run", "worker", "span")}
    if route == "kernels/calls":  # of the most frequent one
        kernels = loaded.tables.kernels
        named["name"] = kernels.filter(kernels["kind"] == "compute")["name"].drop_nulls().mode().sort().cast(str)[0]
    opened, opened_cpu = time.perf_counter(), time.process_time()
    answer = client.get(f"/api/v1/{route}", query_string={**named, "limit": 100})
    return {
        "route": route,
        "status": answer.status_code,
        "open_ms": [round((opened_cpu - cpu) * 1e3), round((opened - began) * 1e3)],
        "page_ms": [round((time.process_time() - opened_cpu) * 1e3), round((time.perf_counter() - opened) * 1e3)],
        "bytes": len(answer.data),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("capture", type=Path)
    parser.add_argument("table", nargs="?", choices=TABLES, help="measured in this process; default each in its own")
    args = parser.parse_args()
    if args.table:
        print(json.dumps(measure(args.capture.resolve(), args.table)))
        return 0
    for route in TABLES:
        command = [sys.executable, "-m", "benchmarks.analysis.page", str(args.capture), route]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        print(done.stdout.strip() or f"{route}: {done.stderr.strip().splitlines()[-1:]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
