// SPDX-License-Identifier: Apache-2.0
// The fake NCCL: processes of one machine exchange values over local sockets when their streams come to it.
// Differences between ranks, where the real one hangs or mixes up memory, are noted.
#include "StandIn.h"

#include "cuda/Nccl.h"

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <map>
#include <memory>
#include <mutex>
#include <poll.h>
#include <random>
#include <set>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>
#include <vector>

using namespace mpt::rt;
using namespace standin;
using nccl::ncclComm;

struct nccl::ncclComm {
  int rank, ranks;
  std::string id;
  bool blocks;
  std::vector<int> sockets; // by rank; -1 for its own
  std::atomic<int> state{nccl::InProgress};
  std::atomic<bool> aborted{false}, executes{false};
  std::atomic<int> hidden{0}; // looks at the state that still say that it goes on
  std::string said;           // of its last error
  uint64_t groups = 0;        // executed
  int uses = 0;               // calls that streams or graphs hold
  std::thread opening;
  cu::Stream held = nullptr;
  bool finalized = false;
};

namespace {

using Clock = std::chrono::steady_clock;
enum Kind : uint32_t { Send = 1, Receive, Gather };
constexpr nccl::Result systemError = 2;
constexpr uint32_t magic = 0x6e63636c;

struct Call {
  Kind kind;
  const void *from;
  void *to;
  size_t count;
  int type, peer;
  nccl::Comm comm;
  cu::Stream stream;
};
/// Before every part of a message.
struct Header {
  uint32_t magic, kind;
  uint64_t group, count;
  int32_t type, part;
};

std::mutex mutex; // of the variables below; taken for moments alone
std::set<ncclComm *> live;
thread_local int depth = 0;
thread_local std::vector<Call> calls;

int64_t setting(const char *variable, int64_t otherwise) {
  const char *given = getenv(variable);
  return given ? atoll(given) : otherwise;
}

int64_t sizeOf(int type) {
  switch (type) {
  case nccl::Uint8:
    return 1;
  case nccl::Float16:
  case nccl::Bfloat16:
    return 2;
  case nccl::Float32:
    return 4;
  default:
    violation("NCCL: a type that the runtime does not use: " + std::to_string(type));
    return 1;
  }
}

bool isLive(ncclComm *comm, const char *what) {
  std::lock_guard lock(mutex);
  if (live.count(comm))
    return true;
  violation(std::string(what) + " on a communicator that does not exist");
  return false;
}

std::string nameOf(const ncclComm &comm) { return "NCCL, rank " + std::to_string(comm.rank) + ": "; }

// ---- start-up

sockaddr_un addressOf(const std::string &id, int rank) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  snprintf(address.sun_path + 1, sizeof address.sun_path - 1, "mpt-nccl-%s-%d", id.c_str(), rank);
  return address;
}

bool transferAll(ncclComm &comm, int socket, void *data, size_t bytes, bool sends) {
  for (size_t done = 0; done < bytes;) {
    char *at = static_cast<char *>(data) + done;
    ssize_t n = sends ? send(socket, at, bytes - done, MSG_NOSIGNAL) : recv(socket, at, bytes - done, 0);
    if (n > 0) {
      done += static_cast<size_t>(n);
    } else if (n < 0 && (errno == EAGAIN || errno == EINTR)) {
      if (comm.aborted)
        return false;
      usleep(200);
    } else {
      return false;
    }
  }
  return true;
}

/// Connects to the ranks below, and waits for the ranks above.
void open(ncclComm &comm) {
  struct Greeting {
    int32_t rank, ranks;
  } mine{comm.rank, comm.ranks};
  int listener = socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  sockaddr_un address = addressOf(comm.id, comm.rank);
  bool ok = bind(listener, reinterpret_cast<sockaddr *>(&address), sizeof address) == 0 && listen(listener, 64) == 0;
  if (!ok)
    violation(nameOf(comm) + "two processes have this rank");
  for (int peer = 0; ok && peer < comm.rank; ++peer) {
    sockaddr_un there = addressOf(comm.id, peer);
    int made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    while (!comm.aborted && connect(made, reinterpret_cast<sockaddr *>(&there), sizeof there) != 0)
      usleep(1000);
    fcntl(made, F_SETFL, O_NONBLOCK);
    comm.sockets[static_cast<size_t>(peer)] = made;
    ok = !comm.aborted && transferAll(comm, made, &mine, sizeof mine, true);
  }
  for (int left = comm.ranks - 1 - comm.rank; ok && left > 0;) {
    int made = accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (comm.aborted)
      break;
    if (made < 0) {
      usleep(1000);
      continue;
    }
    Greeting theirs{};
    ok = transferAll(comm, made, &theirs, sizeof theirs, false);
    if (ok && (theirs.ranks != comm.ranks || theirs.rank <= comm.rank || theirs.rank >= comm.ranks ||
               comm.sockets[static_cast<size_t>(theirs.rank)] >= 0)) {
      violation(nameOf(comm) + "a stranger joins: rank " + std::to_string(theirs.rank) + " of " +
                std::to_string(theirs.ranks));
      ok = false;
    }
    if (ok)
      comm.sockets[static_cast<size_t>(theirs.rank)] = made;
    --left;
  }
  close(listener);
  comm.state = ok && !comm.aborted ? nccl::Success : systemError;
}

// ---- execution

struct Part {
  Header header;
  const char *from;
  char *to;
  int64_t bytes;
};
struct Flow { // in one direction with one peer
  std::vector<Part> parts;
  size_t part = 0;
  size_t done = 0; // bytes of the part, its header included
  Header got;
  bool isOver() const { return part == parts.size(); }
};

std::string describe(const Header &h) {
  static const char *const kinds[] = {"nothing", "a send", "a receive", "an all-gather"};
  return std::string(h.kind < 4 ? kinds[h.kind] : "rubbish") + " of " + std::to_string(h.count) + " elements of type " +
         std::to_string(h.type);
}

/// True where something moved. `broken`: the peer is gone; `differs`: it is at something else.
bool moveFlow(ncclComm &comm, int peer, Flow &flow, bool sends, bool &broken, bool &differs) {
  Part &part = flow.parts[flow.part];
  const int socket = comm.sockets[static_cast<size_t>(peer)];
  const bool inHeader = flow.done < sizeof(Header);
  char *header = reinterpret_cast<char *>(sends ? &part.header : &flow.got);
  char *at =
      inHeader ? header + flow.done : (sends ? const_cast<char *>(part.from) : part.to) + (flow.done - sizeof(Header));
  const size_t end = inHeader ? sizeof(Header) : sizeof(Header) + static_cast<size_t>(part.bytes);
  if (flow.done < end) {
    ssize_t n = sends ? send(socket, at, end - flow.done, MSG_NOSIGNAL) : recv(socket, at, end - flow.done, 0);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
      return false;
    if (n <= 0) {
      broken = true;
      return false;
    }
    flow.done += static_cast<size_t>(n);
  }
  if (!sends && flow.done == sizeof(Header)) {
    const Header &want = part.header, &got = flow.got;
    const bool same = got.magic == magic && got.count == want.count && got.type == want.type && got.part == want.part &&
                      (want.kind == Receive ? got.kind == Send : got.kind == want.kind) &&
                      (want.kind != Gather || got.group == want.group);
    if (!same) {
      violation(nameOf(comm) + "expected " + describe(want) + " (group " + std::to_string(want.group) + "), and rank " +
                std::to_string(peer) + " is at " + describe(got) + " (group " + std::to_string(got.group) + ")");
      differs = true;
      return false;
    }
  }
  if (flow.done == sizeof(Header) + static_cast<size_t>(part.bytes)) {
    ++flow.part;
    flow.done = 0;
  }
  return true;
}

void fail(ncclComm &comm, nccl::Result why, std::string text) {
  {
    std::lock_guard lock(mutex);
    comm.said = std::move(text);
  }
  comm.state = why;
  while (!comm.aborted) // as the kernels of a communicator that has failed
    usleep(500);
}

void exchange(ncclComm &comm, std::map<int, Flow> &out, std::map<int, Flow> &in) {
  const auto deadline = Clock::now() + std::chrono::seconds(setting("MPT_STANDIN_NCCL_SECONDS", 60));
  static const int64_t failing = setting("MPT_STANDIN_NCCL_FAIL", 0); // which group, from 1 on
  if (static_cast<int64_t>(comm.groups) == failing)
    return fail(comm, systemError, "the stand-in was asked to fail");
  static const int64_t hanging = setting("MPT_STANDIN_NCCL_HANG", 0); // likewise
  while (static_cast<int64_t>(comm.groups) == hanging && !comm.aborted)
    usleep(500);
  for (;;) {
    bool over = true, moved = false, broken = false, differs = false;
    int waitsFor = -1;
    for (auto *flows : {&out, &in})
      for (auto &[peer, flow] : *flows)
        if (!flow.isOver() && !broken && !differs) {
          over = false;
          waitsFor = peer;
          moved = moveFlow(comm, peer, flow, flows == &out, broken, differs) || moved;
        }
    if (over || comm.aborted)
      return;
    if (differs)
      return fail(comm, nccl::InvalidUsage, "ranks are at different calls");
    if (broken)
      return fail(comm, nccl::RemoteError, "rank " + std::to_string(waitsFor) + " is gone");
    if (Clock::now() > deadline) {
      violation(nameOf(comm) + "hangs in group " + std::to_string(comm.groups) + ": rank " + std::to_string(waitsFor) +
                " does not come");
      return fail(comm, systemError, "a rank does not come");
    }
    if (!moved)
      usleep(50);
  }
}

/// A group at its turn on the stream.
void executeGroup(ncclComm &comm, const std::vector<Call> &group) {
  ++comm.groups;
  std::map<int, Flow> out, in;
  std::map<std::pair<int, int>, int> numbers; // of parts by peer and direction
  for (const Call &call : group) {
    const int64_t bytes = static_cast<int64_t>(call.count) * sizeOf(call.type);
    auto *from = static_cast<const char *>(
        call.kind == Receive || !bytes ? nullptr : translate(reinterpret_cast<uint64_t>(call.from), bytes, "ncclSend"));
    auto *to = static_cast<char *>(call.kind == Send || !bytes
                                       ? nullptr
                                       : translate(reinterpret_cast<uint64_t>(call.to),
                                                   bytes * (call.kind == Gather ? comm.ranks : 1), "ncclRecv"));
    if (dry() || (bytes && ((call.kind != Receive && !from) || (call.kind != Send && !to))))
      return;
    auto header = [&](int peer, bool sends) {
      return Header{magic, call.kind, comm.groups, call.count, call.type, numbers[{peer, sends}]++};
    };
    if (call.kind == Send)
      out[call.peer].parts.push_back({header(call.peer, true), from, nullptr, bytes});
    if (call.kind == Receive)
      in[call.peer].parts.push_back({header(call.peer, false), nullptr, to, bytes});
    for (int peer = 0; call.kind == Gather && peer < comm.ranks; ++peer)
      if (peer != comm.rank) {
        out[peer].parts.push_back({header(peer, true), from, nullptr, bytes});
        in[peer].parts.push_back({header(peer, false), nullptr, to + peer * bytes, bytes});
      } else if (from != to + peer * bytes && bytes) {
        memcpy(to + peer * bytes, from, static_cast<size_t>(bytes));
      }
  }
  comm.executes = true;
  {
    Unlocked others;
    if (!comm.aborted)
      exchange(comm, out, in);
  }
  comm.executes = false;
}

/// Notes calls that a group may not hold.
void checkGroup(const ncclComm &comm, const std::vector<Call> &group) {
  struct Range {
    uint64_t begin, end;
    bool written;
  };
  std::vector<Range> ranges;
  bool collectives = false, messages = false;
  for (const Call &call : group) {
    (call.kind == Gather ? collectives : messages) = true;
    if (call.comm != group.front().comm || call.stream != group.front().stream)
      violation(nameOf(comm) + "a group on several streams or communicators");
    if (call.kind != Gather && (call.peer < 0 || call.peer >= comm.ranks || call.peer == comm.rank))
      violation(nameOf(comm) + "a message to or from rank " + std::to_string(call.peer));
    const uint64_t bytes = call.count * static_cast<uint64_t>(sizeOf(call.type));
    auto from = reinterpret_cast<uint64_t>(call.from), to = reinterpret_cast<uint64_t>(call.to);
    for (uint64_t address : {from, to})
      if (address % static_cast<uint64_t>(sizeOf(call.type)))
        violation(nameOf(comm) + "an address that its type does not fit");
    if (call.kind == Gather) {
      const uint64_t all = bytes * static_cast<uint64_t>(comm.ranks),
                     own = to + bytes * static_cast<uint64_t>(comm.rank);
      if (from != own && from < to + all && to < from + bytes)
        violation(nameOf(comm) + "an all-gather into its own operand, which is not in its place");
      ranges.push_back({to, to + all, true});
    } else if (call.kind == Send) {
      ranges.push_back({from, from + bytes, false});
    } else {
      ranges.push_back({to, to + bytes, true});
    }
  }
  if (collectives && messages)
    violation(nameOf(comm) + "messages and collectives in one group");
  for (size_t i = 0; i < ranges.size(); ++i)
    for (size_t j = 0; j < i; ++j)
      if ((ranges[i].written || ranges[j].written) && ranges[i].begin < ranges[j].end &&
          ranges[j].begin < ranges[i].end)
        violation(nameOf(comm) + "calls of one group touch the same memory");
}

/// Holds the communicator while a stream or a graph has calls on it.
struct Use {
  ncclComm &comm;
  explicit Use(ncclComm &comm) : comm(comm) { count(1); }
  Use(const Use &) = delete;
  ~Use() { count(-1); }
  void count(int by) {
    std::lock_guard lock(mutex);
    comm.uses += by;
  }
};

nccl::Result endGroup() {
  if (calls.empty())
    return nccl::Success;
  std::vector<Call> group = std::move(calls);
  calls.clear();
  ncclComm &comm = *group.front().comm;
  if (!isLive(&comm, "ncclGroupEnd"))
    return nccl::InvalidArgument;
  if (comm.state != nccl::Success || comm.hidden || comm.finalized) {
    violation(nameOf(comm) + "a call before the one before it was settled, or after an error");
    return nccl::InvalidUsage;
  }
  checkGroup(comm, group);
  std::string text = "nccl";
  for (const Call &call : group)
    text += std::string(call.kind == Send      ? " send "
                        : call.kind == Receive ? " receive "
                                               : " gather ") +
            std::to_string(static_cast<int64_t>(call.count) * sizeOf(call.type));
  note(text + (recordingOf(group.front().stream) ? " in a graph" : ""));
  cu::Stream stream = group.front().stream;
  auto use = std::make_shared<Use>(comm);
  enqueueCollective(stream, [use, group] { executeGroup(use->comm, group); });
  if (comm.blocks)
    return nccl::Success;
  comm.held = stream;
  comm.hidden = 2;
  holdStream(stream, "the calls of NCCL on it were settled");
  return nccl::InProgress;
}

nccl::Result add(const Call &call, const char *what) {
  if (!isLive(call.comm, what))
    return nccl::InvalidArgument;
  calls.push_back(call);
  return depth ? nccl::Success : endGroup();
}

} // namespace

#define EXPORT extern "C" __attribute__((visibility("default")))

EXPORT nccl::Result ncclGetVersion(int *version) {
  *version = static_cast<int>(setting("MPT_STANDIN_NCCL", 22703));
  return nccl::Success;
}
EXPORT nccl::Result ncclGetUniqueId(nccl::UniqueId *id) {
  std::random_device random;
  snprintf(id->bytes, sizeof id->bytes, "%08x%08x%08x", random(), random(), random());
  return nccl::Success;
}
EXPORT nccl::Result ncclCommInitRankConfig(nccl::Comm *out, int ranks, nccl::UniqueId id, int rank,
                                           nccl::Config *config) {
  if (rank < 0 || rank >= ranks || !config || config->magic != nccl::Config::magicNumber || config->size < 24) {
    violation("ncclCommInitRankConfig: a rank or settings that make no sense");
    return nccl::InvalidArgument;
  }
  auto *comm = new ncclComm; // stays: whoever uses it after its end is told so
  comm->rank = rank;
  comm->ranks = ranks;
  comm->id = std::string(id.bytes, strnlen(id.bytes, sizeof id.bytes));
  comm->blocks = config->blocking != 0;
  comm->sockets.assign(static_cast<size_t>(ranks), -1);
  {
    std::lock_guard lock(mutex);
    live.insert(comm);
  }
  *out = comm;
  comm->opening = std::thread([comm] { open(*comm); });
  if (!comm->blocks)
    return nccl::InProgress;
  comm->opening.join();
  return comm->state;
}
EXPORT nccl::Result ncclCommGetAsyncError(nccl::Comm comm, nccl::Result *error) {
  if (!isLive(comm, "ncclCommGetAsyncError"))
    return nccl::InvalidArgument;
  *error = comm->state;
  if (*error == nccl::Success && comm->hidden) {
    *error = nccl::InProgress;
    if (--comm->hidden == 0) {
      releaseStream(comm->held);
      *error = nccl::Success;
    }
  }
  return nccl::Success;
}
EXPORT nccl::Result ncclCommFinalize(nccl::Comm comm) {
  if (!isLive(comm, "ncclCommFinalize"))
    return nccl::InvalidArgument;
  std::lock_guard lock(mutex);
  if (comm->uses)
    violation(nameOf(*comm) + "finalized while streams or graphs hold its calls");
  comm->finalized = true;
  return comm->blocks ? nccl::Success : nccl::InProgress;
}

static nccl::Result end(nccl::Comm comm, bool aborts) {
  if (!isLive(comm, aborts ? "ncclCommAbort" : "ncclCommDestroy"))
    return nccl::InvalidArgument;
  if (!aborts && !comm->finalized)
    violation(nameOf(*comm) + "destroyed before it was finalized");
  comm->aborted = aborts;
  if (comm->opening.joinable())
    comm->opening.join();
  while (comm->executes)
    usleep(200);
  if (comm->held)
    releaseStream(comm->held);
  for (int socket : comm->sockets)
    if (socket >= 0)
      close(socket);
  std::lock_guard lock(mutex);
  live.erase(comm);
  return nccl::Success;
}
EXPORT nccl::Result ncclCommDestroy(nccl::Comm comm) { return end(comm, false); }
EXPORT nccl::Result ncclCommAbort(nccl::Comm comm) { return end(comm, true); }

EXPORT nccl::Result ncclGroupStart() {
  ++depth;
  return nccl::Success;
}
EXPORT nccl::Result ncclGroupEnd() {
  if (depth == 0) {
    violation("ncclGroupEnd without ncclGroupStart");
    return nccl::InvalidUsage;
  }
  return --depth ? nccl::Success : endGroup();
}
EXPORT nccl::Result ncclSend(const void *data, size_t count, int type, int peer, nccl::Comm comm, cu::Stream stream) {
  static const int64_t shortened = setting("MPT_STANDIN_NCCL_SHORT", 0); // which call, from 1 on
  static int64_t sends = 0;
  count -= ++sends == shortened;
  return add({Send, data, nullptr, count, type, peer, comm, stream}, "ncclSend");
}
EXPORT nccl::Result ncclRecv(void *data, size_t count, int type, int peer, nccl::Comm comm, cu::Stream stream) {
  return add({Receive, nullptr, data, count, type, peer, comm, stream}, "ncclRecv");
}
EXPORT nccl::Result ncclAllGather(const void *mine, void *all, size_t count, int type, nccl::Comm comm,
                                  cu::Stream stream) {
  return add({Gather, mine, all, count, type, -1, comm, stream}, "ncclAllGather");
}
EXPORT const char *ncclGetErrorString(nccl::Result result) {
  return result == nccl::RemoteError    ? "remote process exited or there was a network error"
         : result == nccl::InvalidUsage ? "invalid usage"
                                        : "unhandled system error";
}
EXPORT const char *ncclGetLastError(nccl::Comm comm) {
  static thread_local std::string text;
  std::lock_guard lock(mutex);
  text = live.count(comm) ? comm->said : "";
  return text.c_str();
}
