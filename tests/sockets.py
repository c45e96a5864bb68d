"""Ports of this machine: free ones, and listening processes."""

from __future__ import annotations

import contextlib
import os
import random
import socket
from collections.abc import Iterable
from pathlib import Path

LOOPBACK = ("0100007F", "00000000000000000000000001000000", "0000000000000000FFFF00000100007F")


def free_port() -> int:
    """A port of the loopback address that no process listens to, below those that systems give to connections."""
    for port in random.SystemRandom().sample(range(20_000, 32_000), 100):
        with socket.socket() as taken, contextlib.suppress(OSError):
            taken.bind(("127.0.0.1", port))
            return port
    raise OSError("no port from 20000 to 31999 is free")


def listening(pids: Iterable[int]) -> tuple[list[int], list[int]]:
    """Listening ports of these processes: those on the loopback address, and those on other addresses."""
    sockets = set()
    for pid in pids:
        with contextlib.suppress(OSError):
            for one in os.scandir(f"/proc/{pid}/fd"):
                with contextlib.suppress(OSError):
                    sockets.add(os.readlink(one.path))
    ports: tuple[list[int], list[int]] = [], []
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for line in Path(table).read_text().splitlines()[1:]:
            address, state, inode = (line.split()[i] for i in (1, 3, 9))
            host, port = address.split(":")
            if state == "0A" and f"socket:[{inode}]" in sockets:
                ports[host not in LOOPBACK].append(int(port, 16))
    return ports
