// SPDX-License-Identifier: Apache-2.0
// The C interface of worlds: options and launcher together, then one call of World each.
#include "core/Error.h"
#include "core/Model.h"
#include "world/Launcher.h"
#include "world/MpiCommunicator.h"
#include "world/TcpCommunicator.h"
#include "world/World.h"

#include <cmath>
#include <cstring>

using namespace mpt::rt;

namespace {

std::string textOf(const char *text) { return text ? text : ""; }

/// The settings in force: from options, the launcher where they give none, and defaults.
struct Settings {
  Launch launch;
  bool useMpi = false;
  TcpOptions tcp;
  std::string mpiLibrary;
};

mpt_status readTime(const char *name, double given, double &time) {
  if (given == 0)
    return MPT_OK;
  if (!(given > 0) || !(given < 1e9))
    return fail(MPT_INVALID_ARGUMENT, "%s: expected a number of seconds above 0, got %g", name, given);
  time = given;
  return MPT_OK;
}

mpt_status readRanks(const mpt_world_options &options, Settings &settings) {
  Launch &launch = settings.launch;
  if (options.size < 0 || options.rank < 0 || (options.size > 0 && options.rank >= options.size))
    return fail(MPT_INVALID_ARGUMENT, "expected a rank from 0 on and below the size, got rank %d of %d", options.rank,
                options.size);
  if (options.size > 0) {
    launch.rank = options.rank;
    launch.size = options.size;
  } else if (options.rank > 0) {
    return fail(MPT_INVALID_ARGUMENT, "expected the world's size with rank %d, got 0", options.rank);
  } else if (launch.size == 0 && !settings.useMpi) {
    launch.rank = 0;
    launch.size = 1;
  }
  settings.tcp.rank = launch.rank;
  settings.tcp.size = launch.size;
  return MPT_OK;
}

/// Where the ranks meet. An error names the setting that is missing.
mpt_status readMeeting(const mpt_world_options &options, Settings &settings) {
  TcpOptions &tcp = settings.tcp;
  tcp.address = options.address ? options.address : settings.launch.address;
  tcp.port = options.port ? options.port : settings.launch.port;
  tcp.token = options.token ? options.token : settings.launch.token;
  const char *from = settings.launch.by.empty() ? "no launcher was found" : settings.launch.by.c_str();
  if (tcp.address.empty())
    return fail(MPT_INVALID_ARGUMENT,
                "expected the address of rank 0 (`address`, or MASTER_ADDR of a launcher), got none: %s", from);
  if (tcp.port < 1 || tcp.port > 65535)
    return fail(MPT_INVALID_ARGUMENT, "expected a port of rank 0 (`port`, or MASTER_PORT of a launcher), got %d: %s",
                tcp.port, from);
  if (tcp.token.empty())
    return fail(
        MPT_INVALID_ARGUMENT,
        "expected a token, which every rank has to know to join: give `token`, or torchrun's --rdzv-id, a secret one");
  if (tcp.token.size() > 255)
    return fail(MPT_INVALID_ARGUMENT, "expected a token of at most 255 bytes, got %zu", tcp.token.size());
  return MPT_OK;
}

mpt_status readOptions(const mpt_world_options &options, Settings &settings) {
  if (options.version != MPT_WORLD_VERSION)
    return fail(MPT_INCOMPATIBLE, "expected version %d of mpt_world_options, got %d", MPT_WORLD_VERSION,
                options.version);
  settings.launch = detectLaunch();
  Times &times = settings.tcp.times;
  if (mpt_status status = readTime("timeout_seconds", options.timeout_seconds, times.timeout))
    return status;
  if (mpt_status status = readTime("patience_seconds", options.patience_seconds, times.patience))
    return status;
  if (mpt_status status = readTime("start_seconds", options.start_seconds, times.start))
    return status;
  settings.mpiLibrary = textOf(options.mpi_library);
  std::string transport = options.transport ? options.transport : "auto";
  if (transport == "mpi")
    settings.useMpi = true;
  else if (transport == "auto")
    settings.useMpi = settings.launch.speaksMpi && !options.address;
  else if (transport != "tcp")
    return fail(MPT_INVALID_ARGUMENT, "expected transport tcp, mpi or auto, got '%s'", transport.c_str());
  if (mpt_status status = readRanks(options, settings))
    return status;
  if (settings.useMpi || settings.launch.size == 1)
    return MPT_OK;
  return readMeeting(options, settings);
}

mpt_status init(const mpt_world_options *given, mpt_world **out) {
  mpt_world_options options = {};
  options.version = MPT_WORLD_VERSION;
  if (given)
    options = *given;
  Settings settings;
  if (mpt_status status = readOptions(options, settings))
    return status;
  auto handle = std::make_unique<mpt_world>();
  handle->localRank = settings.launch.localRank;
  if (settings.launch.size == 1) {
    handle->world = std::make_shared<World>();
  } else {
    Failure failure;
    auto progress = std::make_unique<Progress>(
        [&settings](std::unique_ptr<Communicator> &communicator) {
          if (!settings.useMpi)
            return openTcp(settings.tcp, communicator);
          return openMpi({settings.mpiLibrary, mpiLibraries(settings.launch), settings.launch.rank,
                          settings.launch.size, settings.tcp.times},
                         communicator);
        },
        failure);
    if (failure)
      return fail(failure.status, "%s", failure.text.c_str());
    handle->world = std::make_shared<World>(std::move(progress));
    handle->world->patience = settings.tcp.times.patience;
  }
  handle->transport = handle->world->transport();
  *out = handle.release();
  return MPT_OK;
}

/// Calls body(world) unless the handle is NULL.
template <typename Body> mpt_status with(const mpt_world *world, Body body) {
  if (!world)
    return fail(MPT_INVALID_ARGUMENT, "expected a world, got NULL");
  return guarded([&] { return body(*world->world); });
}

} // namespace

extern "C" {

mpt_status mpt_world_init(const mpt_world_options *options, mpt_world **out) {
  if (!out)
    return fail(MPT_INVALID_ARGUMENT, "expected a place for the world, got NULL");
  *out = nullptr;
  return guarded([&] { return init(options, out); });
}

void mpt_world_destroy(mpt_world *world) { delete world; }

int32_t mpt_world_rank(const mpt_world *world) { return world ? world->world->rank() : 0; }
int32_t mpt_world_size(const mpt_world *world) { return world ? world->world->size() : 1; }
int32_t mpt_world_local_rank(const mpt_world *world) { return world ? world->localRank : 0; }
const char *mpt_world_transport(const mpt_world *world) { return world ? world->transport.c_str() : "none"; }

mpt_status mpt_world_barrier(mpt_world *world) {
  return with(world, [](World &world) { return world.barrier(); });
}

mpt_status mpt_world_broadcast(mpt_world *world, int32_t root, void *data, int64_t bytes) {
  return with(world, [&](World &world) { return world.broadcast(root, data, bytes); });
}

mpt_status mpt_world_agree(mpt_world *world, const char *what, const char *text) {
  if (!what || !text)
    return fail(MPT_INVALID_ARGUMENT, "expected a text to compare and what it is, got NULL");
  return with(world, [&](World &world) { return world.agree(what, text); });
}

mpt_status mpt_world_abandon(mpt_world *world, const char *why) {
  return with(world, [&](World &world) { return world.abandon(why ? why : "it did not say why"); });
}

mpt_status mpt_world_statistics(const mpt_world *world, mpt_world_stats *out) {
  if (!out || out->version != MPT_WORLD_VERSION)
    return fail(MPT_INCOMPATIBLE, "expected version %d of mpt_world_stats, got %s", MPT_WORLD_VERSION,
                out ? std::to_string(out->version).c_str() : "NULL");
  return with(world, [&](World &world) {
    world.statistics(*out);
    return MPT_OK;
  });
}

} // extern "C"
