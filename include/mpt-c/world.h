// SPDX-License-Identifier: Apache-2.0
/* A world: the processes that train one model together, and how they find and hear each other.
 *
 * Plain C, in the style of runtime.h: a status from every call, mpt_last_error() for its text. Every process makes one
 * world and has a number in it, its rank, from 0 on. Calls marked "collective" are made by all ranks, in the same
 * order; a rank that makes another one than its peers is told so, with both calls.
 *
 * Faults: once a rank dies, hangs or is cut off, every call on the world, also one that waits, returns
 * MPT_PEER_LOST, and mpt_last_error() has its number. The world is of no further use then: destroy it, and restart from
 * the last checkpoint. mpt_world_options sets the times; docs/distributed.md has the whole contract.
 *
 * Threads: a world is used by one thread at a time, and has a thread of its own that sends and receives. */
#ifndef MPT_C_WORLD_H
#define MPT_C_WORLD_H

#include "mpt-c/runtime.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct mpt_world mpt_world;

enum { MPT_WORLD_VERSION = 1 }; /* of the structures below */

/* Set `version`, zero the rest, then set the fields that differ. Fields left at zero are taken from the launcher:
 * torchrun, Open MPI's mpirun, an mpiexec with PMI or PMIx, srun. Without one the world is this process alone. */
typedef struct mpt_world_options {
  int32_t version;       /* MPT_WORLD_VERSION */
  int32_t rank, size;    /* size 0: both from the launcher */
  const char *transport; /* "tcp", "mpi"; NULL or "auto": MPI under an MPI launcher, TCP under others */
  /* TCP: where rank 0 waits for the others (its own host's name or address), and what they have to know to join. The
   * token goes over the network as it is: the network between ranks has to be private. At most 255 bytes. */
  const char *address;
  int32_t port;
  const char *token;
  const char *mpi_library; /* path of libmpi; NULL: the launcher's own kind, where the system's loader finds it */
  double timeout_seconds;  /* a rank that gave no sign of life for so long is lost; 0: 30 */
  double patience_seconds; /* a rank that lives but does not come to a collective for so long is lost; 0: 1800 */
  double start_seconds;    /* all ranks have to have come within so long; 0: 300 */
} mpt_world_options;

/* Collective. `options` may be NULL. MPT_INVALID_ARGUMENT for options that do not fit, MPT_PEER_LOST for ranks that did
 * not come, MPT_INCOMPATIBLE for ranks of another version or size, MPT_NOT_FOUND without an MPI library. */
mpt_status mpt_world_init(const mpt_world_options *options, mpt_world **out);

/* Leaves the world. Ranks that still need this one get MPT_PEER_LOST. With MPI it waits for the others, unless one is
 * lost. Trainers and reductions that use the world keep it alive. */
void mpt_world_destroy(mpt_world *world);

int32_t mpt_world_rank(const mpt_world *world);
int32_t mpt_world_size(const mpt_world *world);
int32_t mpt_world_local_rank(const mpt_world *world);    /* among the ranks of this host, 0 where nobody says */
const char *mpt_world_transport(const mpt_world *world); /* "tcp", "mpi (Open MPI)", ..., "none" for one process */

/* Collective; MPT_OK once every rank has come. */
mpt_status mpt_world_barrier(mpt_world *world);

/* Collective: `bytes` bytes at `data` of rank `root` to every rank. */
mpt_status mpt_world_broadcast(mpt_world *world, int32_t root, void *data, int64_t bytes);

/* Collective: MPT_OK where `text` is the same on all ranks. Else MPT_INCOMPATIBLE on all of them, with `what`, the
 * first rank that differs from rank 0, and both texts. The world stays usable. */
mpt_status mpt_world_agree(mpt_world *world, const char *what, const char *text);

/* Tells all ranks that this one cannot go on: they return MPT_PEER_LOST with its number and `why`. */
mpt_status mpt_world_abandon(mpt_world *world, const char *why);

/* Since the world was made. */
typedef struct mpt_world_stats {
  int32_t version;      /* set by the caller: MPT_WORLD_VERSION */
  int32_t slowest_rank; /* the rank that this one has waited for most; -1 before it waited for any */
  int64_t collectives;  /* that were run */
  int64_t bytes_sent;   /* of values, as the algorithms need them */
  int64_t bytes_received;
  int64_t overhead_bytes; /* sent besides: headers and signs of life */
  double seconds;         /* during which collectives ran */
  double waited_seconds;  /* during which a caller waited for them */
  double hidden_seconds;  /* `seconds` that no caller waited for */
  double slowest_seconds; /* waited for `slowest_rank` */
} mpt_world_stats;

mpt_status mpt_world_statistics(const mpt_world *world, mpt_world_stats *out);

#ifdef __cplusplus
}
#endif
#endif
