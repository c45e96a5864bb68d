"""How the processes of a job find each other, tell each other something, and notice who is lost.

Connections of our own, between process 0 and each of the others: JAX's own service ends a process with a stack trace
where another does not come or is lost, and has no public way to send anything.
"""

from __future__ import annotations

import contextlib
import json
import queue
import socket
import threading
import time
from multiprocessing.connection import Connection
from typing import Any, NamedTuple

from meta.cluster.worker import vector_units, versions
from meta.loop import Lost

GREETING = 10.0  # seconds in which whoever connects says who it is
MOST_WORDS = 1 << 16  # bytes that a process says of itself, at most
AGAIN = 0.2  # seconds between two attempts to connect
BEATS = 5  # signs of life in the time after which there should have been one


class Place(NamedTuple):
    """Which process of a job this is."""

    coordinator: str  # HOST:PORT where process 0 listens
    processes: int
    process_id: int


class Peer:
    """A connection with another process: what is sent and received never keeps this one waiting.

    Args:
      connection: with it.
      process_id: of the other.
      heartbeat: seconds without a sign of life after which it is lost.
    """

    def __init__(self, connection: Connection, process_id: int, heartbeat: float):
        self.process_id = process_id
        self.received = queue.SimpleQueue[tuple[bytes, bytes]]()  # kind, payload; at its end an empty kind
        self._connection, self._heartbeat = connection, heartbeat
        self._to_send = queue.SimpleQueue[bytes]()
        self._heard, self._ended = time.monotonic(), False
        for work in (self._send, self._receive):
            threading.Thread(target=work, daemon=True).start()

    def send(self, kind: bytes, payload: bytes = b"") -> None:
        """Has something sent; the kind is a letter."""
        self._to_send.put(kind + payload)

    @property
    def lost(self) -> str:
        """How it was lost, in words; empty if it was not."""
        if self._ended:
            return f"process {self.process_id} is not there any more"
        if time.monotonic() - self._heard > self._heartbeat:
            return f"process {self.process_id} has been silent for {self._heartbeat:g} s"
        return ""

    def _send(self) -> None:
        while not self._ended:
            try:
                message = self._to_send.get(timeout=self._heartbeat / BEATS)
            except queue.Empty:
                message = b" "
            try:
                self._connection.send_bytes(message)
            except OSError:
                return

    def _receive(self) -> None:
        try:
            while True:
                message = self._connection.recv_bytes()
                self._heard = time.monotonic()
                if message != b" ":
                    self.received.put((message[:1], message[1:]))
        except (EOFError, OSError):
            self._ended = True
            self.received.put((b"", b""))


def gather(place: Place, timeout: float, heartbeat: float) -> tuple[list[Peer], set[str]]:
    """Waits until all processes are there and fit each other.

    Returns:
      The others for process 0, process 0 for the others; and the vector units that there are.

    Raises:
      ValueError: if somebody does not come in `timeout` seconds, or does not fit; to all of them.
    """
    if place.process_id:
        return _join(place, timeout, heartbeat)
    found, hellos = _listen(place, time.monotonic() + timeout), [_hello(place)]
    if len(found) < place.processes - 1:
        refused = f"processes: got {place.processes}; {len(found) + 1} came within {timeout:.0f} s"
    else:
        hellos += [hello for _, hello in found]
        refused = next(filter(None, (_misfit(hellos[:i], hello) for i, hello in enumerate(hellos))), "")
    verdict = {"refused": refused, "vectors": sorted({hello["vectors"] for hello in hellos})}
    for connected, _ in found:
        with contextlib.suppress(OSError):  # that it is gone is noticed soon
            _tell(connected, verdict)
    if refused:
        raise ValueError(refused)
    return [_peer(connected, hello["process_id"], heartbeat) for connected, hello in found], set(verdict["vectors"])


def _hello(place: Place) -> dict[str, Any]:
    """What a process says of itself."""
    return {
        "process_id": place.process_id,
        "processes": place.processes,
        "versions": versions(),
        "vectors": vector_units(),
    }


def _misfit(others: list[dict[str, Any]], hello: dict[str, Any]) -> str:
    """Why a process cannot take part beside those that came before, process 0 first; empty if it can."""
    who = hello["process_id"]
    if who in [other["process_id"] for other in others]:
        return f"process_id: got {who} from two processes; each needs its own"
    for first in others[:1]:
        if hello["processes"] != first["processes"]:
            theirs, needed = hello["processes"], first["processes"]
            return f"processes: got {theirs} by process {who}; the {needed} of process 0 are needed"
        for name, needed in first["versions"].items():
            if (theirs := hello["versions"].get(name, "none")) != needed:
                return f"cluster: process {who} has {name} {theirs}; the {needed} of process 0 is needed"
    return ""


def _listen(place: Place, until: float) -> list[tuple[socket.socket, dict[str, Any]]]:
    """Connections with the others, as many as come in time, and what they say of themselves."""
    port = int(place.coordinator.rpartition(":")[2])
    both = socket.has_dualstack_ipv6()
    try:
        server = socket.create_server(
            ("", port),
            family=socket.AF_INET6 if both else socket.AF_INET,
            backlog=place.processes,
            dualstack_ipv6=both,
        )
    except OSError as error:
        got = f"coordinator: got {place.coordinator!r}"
        raise ValueError(f"{got}; process 0 cannot listen there: {error.strerror or error}") from None
    found = list[tuple[socket.socket, dict[str, Any]]]()
    with server:
        while len(found) < place.processes - 1 and (left := until - time.monotonic()) > 0:
            server.settimeout(min(left, 1.0))
            try:
                connected = server.accept()[0]
                hello = _hear(connected, GREETING)
            except (OSError, ValueError):  # nobody, or nobody of ours
                continue
            if hello.keys() == _hello(place).keys():
                found.append((connected, hello))
    return found


def _join(place: Place, timeout: float, heartbeat: float) -> tuple[list[Peer], set[str]]:
    """What `gather` does in the others."""
    host, _, port = place.coordinator.rpartition(":")
    until, problem = time.monotonic() + timeout, ""
    while (left := until - time.monotonic()) > 0:
        try:
            connected = socket.create_connection((host.strip("[]"), int(port)), min(left, GREETING))
            _tell(connected, _hello(place))
            verdict = _hear(connected, timeout + GREETING)  # process 0 may have begun to wait just now
        except (OSError, ValueError) as error:
            problem = f" ({getattr(error, 'strerror', None) or error})"
            time.sleep(min(AGAIN, left))
            continue
        if verdict["refused"]:
            raise ValueError(verdict["refused"])
        return [_peer(connected, 0, heartbeat)], set(verdict["vectors"])
    raise ValueError(
        f"coordinator: got {place.coordinator!r}; process 0 does not answer there in {timeout:.0f} s{problem}"
    )


def _tell(connected: socket.socket, words: dict[str, Any]) -> None:
    data = json.dumps(words).encode()
    connected.sendall(len(data).to_bytes(4) + data)


def _hear(connected: socket.socket, seconds: float) -> dict[str, Any]:
    """What `_tell` said at the other end; OSError or ValueError if that does not come in so many seconds."""
    connected.settimeout(seconds)

    def exactly(number: int) -> bytes:
        data = b""
        while len(data) < number:
            if not (part := connected.recv(number - len(data))):
                raise OSError("it ended")
            data += part
        return data

    size = int.from_bytes(exactly(4))
    words = json.loads(exactly(size)) if size < MOST_WORDS else None
    if not isinstance(words, dict):
        raise ValueError("it speaks of something else")
    return words


def _peer(connected: socket.socket, process_id: int, heartbeat: float) -> Peer:
    connected.settimeout(None)
    connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return Peer(Connection(connected.detach()), process_id, heartbeat)


def next_of(peer: Peer, seconds: float) -> tuple[bytes, bytes]:
    """What it sends next, as (kind, payload); an empty kind if nothing has come in so many seconds.

    Raises:
      Lost: if it is not there any more.
    """
    try:
        kind, payload = peer.received.get(timeout=seconds)
    except queue.Empty:
        kind, payload = b"", b""
    if not kind and peer.lost:
        raise Lost(f"cluster: {peer.lost}")
    return kind, payload
