// SPDX-License-Identifier: Apache-2.0
// Variables of torchrun (which Kubernetes operators set, too), Open MPI, PMI, PMIx and Slurm.
#include "world/Launcher.h"

#include <cstdlib>

using namespace mpt::rt;

static std::string textOf(const char *value) { return value ? value : ""; }

/// -1 for a text that is no number.
static int numberOf(const char *value) {
  if (!value || !*value)
    return -1;
  char *end;
  long number = strtol(value, &end, 10);
  return *end || number < 0 || number > 0x7fffffff ? -1 : static_cast<int>(number);
}

static bool isComplete(const Launch &launch) {
  return launch.rank >= 0 && launch.size > 0 && launch.rank < launch.size;
}

/// The ranks that the values of three variables tell.
static Launch ranksOf(const char *by, const char *rank, const char *size, const char *localRank) {
  Launch launch;
  launch.by = by;
  launch.rank = numberOf(rank);
  launch.size = numberOf(size);
  launch.localRank = numberOf(localRank);
  return launch;
}

static Launch torchrun() {
  Launch launch = ranksOf("RANK and WORLD_SIZE", getenv("RANK"), getenv("WORLD_SIZE"), getenv("LOCAL_RANK"));
  launch.address = textOf(getenv("MASTER_ADDR"));
  launch.port = numberOf(getenv("MASTER_PORT"));
  // torchrun's agent listens at the port itself.
  if (textOf(getenv("TORCHELASTIC_USE_AGENT_STORE")) == "True" && launch.port > 0)
    launch.port += launch.port < 65535 ? 1 : -1;
  std::string id = textOf(getenv("TORCHELASTIC_RUN_ID"));
  if (!id.empty() && id != "none") // its default, which everybody knows
    launch.token = id + "/" + textOf(getenv("TORCHELASTIC_RESTART_COUNT"));
  return launch;
}

static Launch openMpi() {
  Launch launch = ranksOf("Open MPI's mpirun", getenv("OMPI_COMM_WORLD_RANK"), getenv("OMPI_COMM_WORLD_SIZE"),
                          getenv("OMPI_COMM_WORLD_LOCAL_RANK"));
  launch.speaksMpi = launch.isOpenMpi = true;
  return launch;
}

static Launch pmi() {
  Launch launch = ranksOf("a launcher with PMI", getenv("PMI_RANK"), getenv("PMI_SIZE"), getenv("MPI_LOCALRANKID"));
  launch.speaksMpi = true;
  return launch;
}

static Launch slurm() {
  Launch launch = ranksOf("srun", getenv("SLURM_PROCID"), getenv("SLURM_STEP_NUM_TASKS"), getenv("SLURM_LOCALID"));
  launch.address = textOf(getenv("MASTER_ADDR"));
  launch.port = numberOf(getenv("MASTER_PORT"));
  if (launch.address.empty())
    launch.address = firstHost(textOf(getenv("SLURM_STEP_NODELIST")));
  // Jobs that share a node get ports of their own.
  if (int job = numberOf(getenv("SLURM_JOB_ID")); launch.port < 0 && job >= 0)
    launch.port = 20000 + job % 20000;
  // srun gives PMIx's variables where it was asked for --mpi=pmix; the number of tasks is its own.
  launch.speaksMpi = numberOf(getenv("PMIX_RANK")) >= 0;
  return launch;
}

Launch mpt::rt::detectLaunch() {
  for (Launch (*ask)() : {torchrun, openMpi, pmi, slurm}) {
    Launch launch = ask();
    if (!isComplete(launch))
      continue;
    if (launch.localRank < 0)
      launch.localRank = 0;
    if (launch.port < 0)
      launch.port = 0;
    return launch;
  }
  return {};
}

std::string mpt::rt::firstHost(const std::string &list) {
  size_t bracket = list.find('['), comma = list.find(',');
  if (bracket == std::string::npos || comma < bracket)
    return list.substr(0, comma);
  size_t end = list.find_first_of(",-]", bracket);
  return list.substr(0, bracket) + list.substr(bracket + 1, end - bracket - 1);
}

std::vector<std::string> mpt::rt::mpiLibraries(const Launch &launch) {
  if (launch.isOpenMpi)
    return {"libmpi.so.40", "libmpi_abi.so.0", "libmpi.so"};
  return {"libmpich.so.12", "libmpi.so.12", "libmpi_abi.so.0", "libmpi.so.40", "libmpi.so"};
}
