"""Takes the picture of the panel in docs/howto: python docs/panel.py [--empty] [--output FILE].

A sweep runs for half a minute on two workers; halfway, a Chromium without a window looks at the
page. It needs the extra `dashboard`, and `chromium` and `chromedriver` in the path (Debian's
chromium-driver); tests do not run it.
"""

from __future__ import annotations

import argparse
import base64
import json
import subprocess
import tempfile
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
from distributed import Client, LocalCluster

import heomdask as hd

PICTURE = Path(__file__).parent / "howto" / "panel.png"
SECONDS = 25.0  # of the sweep, before the picture is taken
OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--hide-scrollbars", "--window-size=1280,860",
)  # fmt: skip
PORT = 9515
CLUSTER: dict[str, Any] = {
    "n_workers": 2, "threads_per_worker": 1, "memory_limit": "1 GiB",
    "dashboard_address": "127.0.0.1:0",
}  # fmt: skip
DRAWING = 5.0  # seconds until the page is complete
P1, P2 = np.diag([1.0, 0.0]), np.diag([0.0, 1.0])


def build(T: float, lam: float, rng: np.random.Generator) -> Any:
    energies = np.array([100.0, 0.0]) + rng.normal(0, 30, size=2)
    H = np.diag(energies * hd.units.cm1)
    H[0, 1] = H[1, 0] = 50 * hd.units.cm1
    if energies[0] < energies[1] + 40 and lam > 85 * hd.units.cm1 and T < 160 * hd.units.K:
        raise ValueError("the donor lies too close to the acceptor")
    bath = hd.DrudeLorentz(lam=lam, gamma=1 / (100 * hd.units.fs), T=T)
    return hd.Problem(H, [hd.Coupling(Q, bath) for Q in (P1, P2)]), P1


def sweep() -> hd.Sweep:
    return hd.Sweep(
        build,
        over={
            "T": hd.axis(np.linspace(100, 300, 11).tolist(), "K"),
            "lam": hd.axis(range(5, 101, 5), "cm^-1"),
        },
        samples=16, seed=1, times=hd.axis(range(0, 501, 10), "fs"), depth=9, expansion=hd.Pade(1),
        observables={"P1": P1}, title="A dimer: transfer against temperature and coupling",
    )  # fmt: skip


def take(address: str, picture: Path) -> None:
    """What a browser shows at an address after some seconds, by the WebDriver protocol."""
    with tempfile.TemporaryDirectory() as profile:
        driver = subprocess.Popen(["chromedriver", f"--port={PORT}"], stdout=subprocess.DEVNULL)
        try:
            time.sleep(2)
            options = {"args": [*OPTIONS, f"--user-data-dir={profile}"]}
            asked = {"capabilities": {"alwaysMatch": {"goog:chromeOptions": options}}}
            session = f"session/{ask('POST', 'session', asked)['sessionId']}"
            ask("POST", f"{session}/url", {"url": address})
            time.sleep(DRAWING)
            picture.write_bytes(base64.b64decode(ask("GET", f"{session}/screenshot")))
            ask("DELETE", session)
        finally:
            driver.terminate()
            driver.wait()


def ask(method: str, path: str, content: Any = None) -> Any:
    """An answer of the browser's driver."""
    data = None if content is None else json.dumps(content).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{PORT}/{path}", data, method=method)
    with urllib.request.urlopen(request, timeout=60) as answer:
        return json.load(answer)["value"]


def main() -> None:
    parser = argparse.ArgumentParser(description="Take the picture of the panel.")
    parser.add_argument("--output", type=Path, default=PICTURE)
    parser.add_argument("--empty", action="store_true", help="after the sweep instead")
    given = parser.parse_args()
    with (
        tempfile.TemporaryDirectory() as folder,
        LocalCluster(**CLUSTER) as cluster,
        Client(cluster) as client,
    ):
        page = client.dashboard_link.removesuffix("/status") + "/heomdask"
        timer = threading.Timer(SECONDS, take, (page, given.output.absolute()))
        if not given.empty:
            timer.start()
        sweep().run(Path(folder) / "dimer.zarr", client=client)
        if given.empty:
            take(page, given.output.absolute())
        else:
            timer.join()


if __name__ == "__main__":
    main()
