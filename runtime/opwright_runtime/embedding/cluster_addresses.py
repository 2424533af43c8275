"""Finds the addresses of a cluster that may be reachable from the internet.

TensorFlow's server of a task listens on all interfaces of its machine, whatever its
address in the cluster is, and needs no password (SECURITY.md).
"""

from __future__ import annotations

import ipaddress
import queue
import socket
import threading
import time
import warnings
from collections.abc import Sequence

_SECONDS_TO_RESOLVE = 2.0  # For all names of a cluster together.


class _Warning:
    """State of the process: whether the warning was given."""

    given = False


def warn_of_public_addresses(addresses: Sequence[str], stacklevel: int) -> None:
    """Warns, once in a process, of addresses that are neither loopback nor private.

    Args:
        addresses: "host:port" of each task.
        stacklevel: as for `warnings.warn`, except that 1 is the caller of this
            function.
    """
    if _Warning.given:
        return
    found = public_addresses(addresses)
    if not found:
        return
    _Warning.given = True
    warnings.warn(
        "software_strategy: the cluster has addresses that are neither loopback nor "
        f"private: {', '.join(found)}. TensorFlow's servers listen on all interfaces, "
        "without authentication or encryption. Anyone who reaches a port can read and "
        "change tables, write files and end the training. Use addresses of a private "
        "network or of a tunnel (WireGuard, ssh). Let a firewall close the ports to "
        "all other machines. SECURITY.md says how",
        stacklevel=stacklevel + 1,
    )


def public_addresses(addresses: Sequence[str]) -> list[str]:
    """The addresses that are neither loopback nor private. Names are resolved.

    A name that the resolver does not answer in 2 seconds counts as private.
    """
    hosts = {address: _host(address) for address in addresses}
    names = {host for host in hosts.values() if _ip(host) is None}
    found = {host: [host] for host in hosts.values()} | _resolved(names)
    return [
        address
        for address, host in hosts.items()
        if any((ip := _ip(one)) is not None and ip.is_global for one in found[host])
    ]


def _host(address: str) -> str:
    """The host of `10.0.0.1:80`, `[::1]:80` or `name:80`, without the port."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdigit():
        host = address
    return host.strip("[]")


def _ip(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return None
    # ::ffff:10.0.0.1 is the IPv4 address 10.0.0.1.
    return getattr(found, "ipv4_mapped", None) or found


def _resolved(names: set[str]) -> dict[str, list[str]]:
    """The addresses of the names that are resolved within _SECONDS_TO_RESOLVE."""
    answers: queue.SimpleQueue[tuple[str, list[str]]] = queue.SimpleQueue()

    def resolve(name: str) -> None:
        try:
            found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
        except (OSError, UnicodeError):
            found = []
        answers.put((name, [str(one[4][0]) for one in found]))

    # Daemon threads do not keep the process from ending while the resolver waits.
    for name in names:
        threading.Thread(target=resolve, args=(name,), daemon=True).start()
    end = time.monotonic() + _SECONDS_TO_RESOLVE
    resolved: dict[str, list[str]] = {name: [] for name in names}
    for _ in names:
        try:
            name, found = answers.get(timeout=max(0.0, end - time.monotonic()))
        except queue.Empty:
            break
        resolved[name] = found
    return resolved
