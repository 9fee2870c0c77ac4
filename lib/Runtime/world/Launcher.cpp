// SPDX-License-Identifier: Apache-2.0
// Variables of torchrun (which Kubernetes operators set, too), Open MPI, PMI, PMIx and Slurm.
#include "world/Launcher.h"

#include <cstdlib>

using namespace mpt::rt;

static std::string textOf(const char *value) { return value ? value : ""; }

/// -1 for what is no number.
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

static Launch torchrun() {
  Launch launch;
  launch.by = "RANK and WORLD_SIZE";
  launch.rank = numberOf(getenv("RANK"));
  launch.size = numberOf(getenv("WORLD_SIZE"));
  launch.localRank = numberOf(getenv("LOCAL_RANK"));
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
  Launch launch;
  launch.by = "Open MPI's mpirun";
  launch.speaksMpi = launch.isOpenMpi = true;
  launch.rank = numberOf(getenv("OMPI_COMM_WORLD_RANK"));
  launch.size = numberOf(getenv("OMPI_COMM_WORLD_SIZE"));
  launch.localRank = numberOf(getenv("OMPI_COMM_WORLD_LOCAL_RANK"));
  return launch;
}

static Launch pmi() {
  Launch launch;
  launch.by = "a launcher with PMI";
  launch.speaksMpi = true;
  launch.rank = numberOf(getenv("PMI_RANK"));
  launch.size = numberOf(getenv("PMI_SIZE"));
  launch.localRank = numberOf(getenv("MPI_LOCALRANKID"));
  return launch;
}

static Launch slurm() {
  Launch launch;
  launch.by = "srun";
  launch.rank = numberOf(getenv("SLURM_PROCID"));
  launch.size = numberOf(getenv("SLURM_STEP_NUM_TASKS"));
  launch.localRank = numberOf(getenv("SLURM_LOCALID"));
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
