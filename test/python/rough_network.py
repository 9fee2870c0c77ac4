# SPDX-License-Identifier: Apache-2.0
"""Two network namespaces joined by a link that delays packets, loses some, or is cut: emulated here, packet by packet, so that it needs no
module of the kernel but TUN. The ends have addresses of the loopback range, and there is no way out."""
import ctypes
import fcntl
import heapq
import os
import random
import select
import shutil
import struct
import subprocess
import threading
import time

TUNSETIFF, IFF_TUN, IFF_NO_PI = 0x400454CA, 0x0001, 0x1000
CLONE_NEWNET = 0x40000000
ADDRESSES = ["127.77.0.1", "127.77.0.2"]


class Unavailable(Exception):
    """This machine lets nobody make namespaces or devices; the text says which."""


def run(*words: str) -> subprocess.CompletedProcess:
    return subprocess.run(words, capture_output=True, text=True)


def require(what: str, *words: str) -> None:
    done = run(*words)
    if done.returncode:
        raise Unavailable(f"{what}: {done.stderr.strip()}")


def open_device(namespace: str, name: str) -> int:
    """A file whose reads are the packets that the namespace sends by device `name`, which it makes. Moves the calling thread there."""
    libc = ctypes.CDLL(None, use_errno=True)
    place = os.open(f"/run/netns/{namespace}", os.O_RDONLY)
    try:
        if libc.setns(place, CLONE_NEWNET):
            raise Unavailable(f"entering a network namespace: {os.strerror(ctypes.get_errno())}")
    finally:
        os.close(place)
    try:
        device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH22x", name.encode(), IFF_TUN | IFF_NO_PI))
    except OSError as error:
        raise Unavailable(f"/dev/net/tun: {error.strerror}") from error
    return device


class Link:
    """`delay` and `jitter` in seconds, one way; `loss` is the part of packets that is lost. `lost` and `carried` count packets, and
    `cut` holds the ends (0, 1) whose packets do not arrive any more."""

    def __init__(self, delay: float = 0, jitter: float = 0, loss: float = 0, seed: int = 0):
        self.delay, self.jitter, self.loss, self.random = delay, jitter, loss, random.Random(seed)
        self.carried, self.lost, self.cut = 0, 0, set()
        self.namespaces = [f"mpt-rough-{os.getpid()}-{end}" for end in range(2)]
        self._stop, self._problem, self._ready = threading.Event(), None, threading.Event()

    def __enter__(self):
        if not shutil.which("ip"):
            raise Unavailable("the command ip is missing")
        try:
            for name in self.namespaces:
                require("making a network namespace", "ip", "netns", "add", name)
            self._thread = threading.Thread(target=self._carry, daemon=True)
            self._thread.start()
            self._ready.wait()
            if self._problem:
                raise self._problem
            for name, address in zip(self.namespaces, ADDRESSES):
                self._configure(name, address)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self._stop.set()
        if hasattr(self, "_thread"):
            self._thread.join()
        for name in self.namespaces:
            run("ip", "netns", "del", name)

    def command(self, end: int) -> list[str]:
        """In front of a command that is to run at that end."""
        return ["ip", "netns", "exec", self.namespaces[end]]

    @staticmethod
    def _configure(name: str, address: str) -> None:
        run("ip", "-n", name, "link", "set", "lo", "up")
        run("ip", "-n", name, "addr", "del", "127.0.0.1/8", "dev", "lo")
        # Loopback addresses may then go over the device.
        require("allowing loopback addresses", "ip", "netns", "exec", name, "sh", "-c", "echo 1 | tee /proc/sys/net/ipv4/conf/*/route_localnet")
        require("an address for the device", "ip", "-n", name, "addr", "add", f"{address}/24", "dev", "mpt0")
        require("switching the device on", "ip", "-n", name, "link", "set", "mpt0", "up")

    def _carry(self) -> None:
        devices = []
        try:
            devices = [open_device(name, "mpt0") for name in self.namespaces]
        except (Unavailable, OSError) as error:
            self._problem = error if isinstance(error, Unavailable) else Unavailable(str(error))
        self._ready.set()
        under_way, number = [], 0  # (when it arrives, number, the end that it came from, packet)
        while not self._problem and not self._stop.is_set():
            wait = min(max(under_way[0][0] - time.monotonic(), 0), 0.1) if under_way else 0.1
            for device in select.select(devices, [], [], wait)[0]:
                try:
                    packet = os.read(device, 65536)
                except OSError:  # the device is not up yet
                    time.sleep(0.001)
                    continue
                end = devices.index(device)
                if end in self.cut or self.random.random() < self.loss:
                    self.lost += 1
                    continue
                number += 1
                heapq.heappush(under_way, (time.monotonic() + self.delay + self.jitter * self.random.uniform(-1, 1), number, end, packet))
            while under_way and under_way[0][0] <= time.monotonic():
                _, _, end, packet = heapq.heappop(under_way)
                if end in self.cut:
                    continue
                try:
                    os.write(devices[1 - end], packet)
                    self.carried += 1
                except OSError:  # a full queue loses packets as any link does
                    self.lost += 1
        for device in devices:
            os.close(device)
