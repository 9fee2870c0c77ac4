# SPDX-License-Identifier: Apache-2.0
"""The processes that train one model together (include/mpt-c/world.h)."""
import functools
from ctypes import byref, c_char_p, c_void_p
from dataclasses import dataclass

import numpy as np

from . import _native

VERSION = 1  # MPT_WORLD_VERSION


@dataclass(frozen=True)
class WorldStats:
    """A rank's exchanges so far. `hidden_seconds` is the part of `seconds`, in which collectives ran, that nobody waited
    for; `slowest_rank` is whom this rank has waited for most, None before it waited for any."""
    collectives: int
    bytes_sent: int
    bytes_received: int
    overhead_bytes: int
    seconds: float
    waited_seconds: float
    hidden_seconds: float
    slowest_rank: int | None
    slowest_seconds: float


class World:
    """The ranks of a job, as this process sees them: its `rank`, their number `size`, `local_rank` among the ranks of this host.

    Made by mpt.init(). Calls marked collective are made by all ranks in the same order. PeerLost, with the rank's number, comes
    from any call once a rank has died, hung or been cut off. `close()`, or leaving a `with` block, leaves the world; leaving
    the block by an exception tells the other ranks, which then fail with its text instead of waiting.
    """

    def __init__(self, options: "_native.WorldOptions", runtime=None):
        self._world = c_void_p()
        self._runtime = _native.runtime(_native.DEFAULT_RUNTIME, "cpu", runtime)
        self._runtime.call("mpt_world_init", byref(options), byref(self._world))
        library = self._runtime.library
        self.rank: int = library.mpt_world_rank(self._world)
        self.size: int = library.mpt_world_size(self._world)
        self.local_rank: int = library.mpt_world_local_rank(self._world)
        self.transport: str = library.mpt_world_transport(self._world).decode()

    def close(self) -> None:
        """Leaves the world; closing twice is fine. Ranks that still need this one get PeerLost."""
        world = self.__dict__.pop("_world", None)
        if world:
            self._runtime.library.mpt_world_destroy(world)

    def __enter__(self):
        return self

    def __exit__(self, kind, error, _) -> None:
        if kind is not None and "_world" in self.__dict__:
            self.abandon(f"{kind.__name__}: {error}")
        self.close()

    def __del__(self):
        self.close()

    def __repr__(self):
        return f"<mpt.World: rank {self.rank} of {self.size}, {self.transport}>"

    def __reduce_ex__(self, _):
        raise TypeError("a world cannot be copied or pickled: every process makes its own with mpt.init()")

    def handle(self) -> c_void_p:
        """The mpt_world, for calls of the C API; ValueError once the world is closed."""
        if "_world" not in self.__dict__:
            raise ValueError("the world is closed")
        return self._world

    def _call(self, name: str, *arguments) -> None:
        self._runtime.call(name, self.handle(), *arguments)

    def barrier(self) -> None:
        """Collective. Returns once every rank has come."""
        self._call("mpt_world_barrier")

    def broadcast(self, array: np.ndarray, root: int = 0) -> np.ndarray:
        """Collective. Gives all ranks the values that `array`, dense and of one size everywhere, has on rank `root`, in place."""
        if not isinstance(array, np.ndarray) or not array.flags.c_contiguous or not array.flags.writeable:
            raise ValueError("expected a dense numpy array that can be written")
        self._call("mpt_world_broadcast", _native.whole_number(root, "a rank"), array.ctypes.data_as(c_void_p), array.nbytes)
        return array

    def agree(self, what: str, text: str) -> None:
        """Collective. Raises Error on all ranks unless `text` is the same on all; the message has the first rank that differs."""
        self._call("mpt_world_agree", what.encode(), text.encode())

    def abandon(self, why: str) -> None:
        """Tells all ranks that this one cannot go on: their calls raise PeerLost with its number and `why`."""
        self._call("mpt_world_abandon", why.encode())

    def statistics(self) -> WorldStats:
        """This rank's exchanges since the world was made."""
        stats = _native.WorldStats(VERSION)
        self._call("mpt_world_statistics", byref(stats))
        values = {name: getattr(stats, name) for name, _ in stats._fields_ if name != "version"}
        if values["slowest_rank"] < 0:
            values["slowest_rank"] = None
        return WorldStats(**values)


def init(*, rank: int | None = None, size: int | None = None, transport: str | None = None, address: str | None = None,
         port: int | None = None, token: str | None = None, timeout: float | None = None, patience: float | None = None,
         start_timeout: float | None = None, mpi_library=None, runtime=None) -> World:
    """Joins the processes that were started together; collective.

    Arguments left out are taken from the launcher: torchrun, mpirun, mpiexec or srun. Without one the world is this process alone.

    rank, size       number of this process, and of all
    transport        "tcp" or "mpi"; None means MPI under an MPI launcher, TCP under others
    address, port    TCP: where rank 0 waits for the others
    token            TCP: a secret that every rank has to know to join; at most 255 bytes
    timeout          seconds without a sign of life after which a rank is lost (30)
    patience         seconds that a rank that lives may keep others waiting in a collective (1800)
    start_timeout    seconds within which all ranks have to come (300)
    mpi_library      path of libmpi
    runtime          path of libmpt_rt

    Raises PeerLost for ranks that do not come, Error for options that do not fit.
    """
    if (rank is None) != (size is None):
        raise ValueError("expected rank and size together")
    if size is not None:
        _native.whole_number(size, "a number of processes", 1)
    whole = _native.whole_number
    options = _native.WorldOptions(
        VERSION, whole(rank or 0, "a rank"), size or 0, _text(transport), _text(address),
        whole(port or 0, "a port", 0, 65535), _text(token), _text(mpi_library),
        timeout or 0, patience or 0, start_timeout or 0)
    return World(options, runtime)


@functools.cache
def joined() -> World:
    """The launcher's world, joined at the first call; for mpt.Trainer(data_parallel=True)."""
    return init()


def _text(value) -> c_char_p | None:
    return None if value is None else _native.path_bytes(value)
