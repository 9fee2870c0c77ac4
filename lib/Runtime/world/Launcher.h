// SPDX-License-Identifier: Apache-2.0
// The rank that the program which started this process gave it, read from that program's environment variables.
#ifndef MPT_RUNTIME_WORLD_LAUNCHER_H
#define MPT_RUNTIME_WORLD_LAUNCHER_H

#include <string>
#include <vector>

namespace mpt::rt {

struct Launch {
  std::string by;         // "torchrun", "srun", ...; empty where nobody says anything
  bool speaksMpi = false; // processes of it find each other through MPI
  bool isOpenMpi = false;
  int rank = -1, size = 0, localRank = 0;
  std::string address; // of rank 0
  int port = 0;
  std::string token; // that only processes of one start know; empty where there is none
};

/// Names of MPI libraries, those first through which processes of `launch` can find each other.
std::vector<std::string> mpiLibraries(const Launch &launch);

/// The most particular one wins: torchrun within srun, mpirun within srun.
Launch detectLaunch();

/// The first host of Slurm's lists, such as "node[03-05,9],other": "node03".
std::string firstHost(const std::string &list);

} // namespace mpt::rt

#endif
