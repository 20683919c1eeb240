"""An ssh server on this machine, for as long as a test takes."""

import asyncio
import contextlib
import socket
import struct
import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import asyncssh

_LOOPBACK = socket.inet_ntoa(struct.pack(">I", socket.INADDR_LOOPBACK))


@dataclass(frozen=True)
class Served:
    """How to reach it: the words of ssh and scp, and the host."""

    ssh: str
    scp: str
    host: str


async def _execute(process: asyncssh.SSHServerProcess[str]) -> None:
    done = await asyncio.to_thread(  # noqa: S604 - what the test itself sends
        subprocess.run,
        process.command or "",
        shell=True,
        capture_output=True,
        text=True,
        check=False,
    )
    process.stdout.write(done.stdout)
    process.stderr.write(done.stderr)
    process.exit(done.returncode)


@contextlib.contextmanager
def serving(folder: Path) -> Iterator[Served]:
    host, user = asyncssh.generate_private_key("ssh-ed25519"), asyncssh.generate_private_key("ssh-ed25519")
    key = folder / "key"
    user.write_private_key(str(key))
    key.chmod(0o600)
    user.write_public_key(str(folder / "known"))
    loop = asyncio.new_event_loop()

    async def start() -> asyncssh.SSHAcceptor:
        return await asyncssh.listen(
            _LOOPBACK,
            0,
            server_host_keys=[host],
            authorized_client_keys=str(folder / "known"),
            process_factory=_execute,
            sftp_factory=True,
            allow_scp=True,
        )

    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    server = asyncio.run_coroutine_threadsafe(start(), loop).result(20)
    options = (
        f"-i {key} -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o LogLevel=ERROR -o BatchMode=yes"
    )
    port = server.get_port()
    try:
        yield Served(f"ssh -p {port} {options}", f"scp -O -P {port} {options}", f"tester@{_LOOPBACK}")
    finally:
        server.close()
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)
