"""A sweep on machines that are logged in to: all of them this one, behind an SSH server here."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ensemble_support import assert_same_bits, disordered, sweep

from heomdask.ensemble.cluster import connect
from heomdask.ensemble.profiles import Ssh
from heomdask.ensemble.runner import SerialRunner

pytestmark = pytest.mark.cluster

asyncssh = pytest.importorskip("asyncssh", reason="needs asyncssh, of the extra ssh")


@pytest.fixture
def port(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """Of a server that lets in the one key of a home folder made for it."""
    keys = tmp_path / ".ssh"
    keys.mkdir(mode=0o700)
    own, host = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
    own.write_private_key(str(keys / "id_ed25519"))
    own.write_public_key(str(keys / "authorized_keys"))
    monkeypatch.setenv("HOME", str(tmp_path))
    loop, stop, ports = asyncio.new_event_loop(), asyncio.Event(), []
    ready, started = threading.Event(), []
    paths = [str(Path(__file__).parent), os.environ.get("PYTHONPATH")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, paths)))

    async def serve() -> None:
        server = await asyncssh.listen(
            "127.0.0.1", 0, server_host_keys=[host], process_factory=run,
            authorized_client_keys=str(keys / "authorized_keys"),
        )  # fmt: skip
        ports.append(server.get_port())
        ready.set()
        await stop.wait()
        server.close()
        await server.wait_closed()
        await asyncio.gather(*(process.wait() for process in started))

    async def run(process: Any) -> None:
        local = await asyncio.create_subprocess_shell(
            f"exec {process.command}",
            stdin=asyncio.subprocess.DEVNULL, stdout=-1, stderr=-1,
        )  # fmt: skip
        started.append(local)
        await process.redirect(stdout=local.stdout, stderr=local.stderr)
        waiting = [
            asyncio.ensure_future(local.wait()),
            asyncio.ensure_future(process.wait_closed()),
        ]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if local.returncode is None:
            local.terminate()
        process.exit(await local.wait())

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert ready.wait(10)
    public = host.export_public_key().decode().strip()
    (keys / "known_hosts").write_text(f"[127.0.0.1]:{ports[0]} {public}\n")
    yield ports[0]
    loop.call_soon_threadsafe(stop.set)
    thread.join(20)
    assert not thread.is_alive()
    loop.close()


def test_a_sweep_on_two_logins_of_one_machine(tmp_path: Path, port: int) -> None:
    profile = Ssh(hosts=("127.0.0.1", "127.0.0.1"), port=port, interface="lo")
    what = sweep(disordered, over={"T": [0.5, 1.0]}, samples=4)
    with connect(cluster=profile) as client:
        there = what.run(tmp_path / "there.zarr", client=client, progress=False)
        assert len(client.nthreads()) == 2
    here = what.run(tmp_path / "here.zarr", client=SerialRunner(), progress=False)
    assert_same_bits(there, here)
