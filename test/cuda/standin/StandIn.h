// SPDX-License-Identifier: Apache-2.0
// A fake CUDA driver, cuBLASLt, cuDNN and NCCL that needs no GPU: it executes in host memory, as late as
// the order of streams and events allows, and notes every use that the real ones would forbid or that races.
#ifndef MPT_TEST_CUDA_STANDIN_H
#define MPT_TEST_CUDA_STANDIN_H

#include <cstdint>
#include <functional>
#include <string>

extern "C" {
/// Counts of events since the last reset. Counters of work count its execution, in graphs or not.
struct StandInCounts {
  int64_t synchronizations, allocations, frees, liveBytes, peakBytes;
  int64_t launches, gemms, convolutions, copiesToDevice, copiesToHost, copiesOnDevice, fills;
  int64_t enqueued; ///< requests that were not part of a graph: launches, copies, fills, GEMMs
  int64_t graphLaunches, captures, violations;
};
void standin_counts(StandInCounts *out);
void standin_reset();
/// All violations so far, one a line.
const char *standin_violations();
/// The device: compute capability 10 * major + minor (0: kernels for the host run), version of the driver, bytes of
/// memory. In force from the next call of the driver on.
void standin_device(int arch, int version, int64_t bytes);
/// Who executes kernels of PTX, at their turn: their name, the module's text, grid and block, bytes of dynamic shared
/// memory, arguments. Null again: nobody, and a device with an architecture runs dry alone.
using StandInExecutor = void (*)(const char *kernel, const char *text, const int64_t *grid, const int64_t *block,
                                 int64_t shared, const uint64_t *arguments, int64_t count);
void standin_executor(StandInExecutor executor);
/// The allocation that `address` lies in: its bytes and, in `start`, where it begins on the host; 0 for none.
int64_t standin_allocation(uint64_t address, uint64_t *start);
/// Notes a violation, as an executor finds it.
void standin_note_violation(const char *text);
/// Makes the n-th kernel launch from now fail with an illegal address when it is executed; 0: none. As with the real
/// driver, a call that waits for it reports that, and every later call does.
void standin_fail_launch(int n);
/// Makes the n-th allocation of device memory from now fail; 0: none.
void standin_fail_allocation(int n);
}

namespace standin {

/// Notes a violation.
void violation(const std::string &text);

/// Host address of `bytes` bytes of device memory at `address`, which have to lie in one live allocation.
void *translate(uint64_t address, int64_t bytes, const char *what);
/// Whether `address` is one of device memory, live or not.
bool onDevice(uint64_t address);

enum class Kind { Launch, Product, Convolution, Fill, CopyOnDevice, CopyToDevice, CopyToHost };

/// Puts work on a stream, or into the graph that it is recording: work that takes so long, as events will say.
void enqueue(void *stream, Kind kind, double milliseconds, std::function<void()> work);

/// Puts work on a stream that waits for other processes. It is called with the driver locked, which it leaves while it
/// waits. From the first of them on streams go on by themselves, as a device does.
void enqueueCollective(void *stream, std::function<void()> work);
/// Leaves the driver to other threads while this lives.
class Unlocked {
public:
  Unlocked();
  Unlocked(const Unlocked &) = delete;
  ~Unlocked();
};
/// The graph that a stream is recording, or null.
const void *recordingOf(void *stream);
/// Said of a stream with calls whose library has not finished with them on the host: nothing may be put there.
void holdStream(void *stream, const char *why);
void releaseStream(void *stream);

/// Whether nothing is executed ($MPT_STANDIN_DRY): sizes, lifetimes and calls are checked all the same, device memory
/// is addresses alone, and code for a real architecture ($MPT_STANDIN_ARCH) is searched for its kernels.
bool dry();

/// Whether $MPT_STANDIN_WRONG names this error, which a library then makes, to test that a check notices it.
bool isWrong(const char *error);

/// Appends a line to the file that $MPT_STANDIN_LOG names.
void note(const std::string &text);

/// Notes a violation where the calling thread records a graph; true then.
bool forbidWhileCapturing(const char *what);
/// Whether a call of `library` ("cublaslt", "cudnn") fails because a graph is recorded, which it spoils
/// ($MPT_STANDIN_REFUSE_CAPTURE).
bool refusesCapture(const char *library);

/// Whether cuBLASLt was opened, by whomever: cuDNN finds it then and does not look for one of its own.
bool blasWasOpened();

} // namespace standin

#endif
