// SPDX-License-Identifier: Apache-2.0
// The entry points of libgomp that the runtime and oneDNN call, over threads that ThreadSanitizer knows.
#include <pthread.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <thread>
#include <vector>

namespace {

/// Members beside the one that made it run one function and end.
class Team {
public:
  Team(void (*fn)(void *), void *data, int count);
  ~Team();
  void wait() { pthread_barrier_wait(&barrier); }

private:
  pthread_barrier_t barrier;
  std::vector<std::thread> members;
};

/// The team that a thread is in, and its number there.
struct Place {
  Team *team = nullptr;
  int number = 0, count = 1;
};
thread_local Place place;
thread_local std::vector<std::pair<Place, std::unique_ptr<Team>>> made; ///< by this thread, with where it was before
thread_local int most = 4;

Team::Team(void (*fn)(void *), void *data, int count) {
  pthread_barrier_init(&barrier, nullptr, static_cast<unsigned>(count));
  for (int i = 1; i < count; ++i)
    members.emplace_back([=] {
      place = {this, i, count};
      fn(data);
    });
}
Team::~Team() {
  for (std::thread &member : members)
    member.join();
  pthread_barrier_destroy(&barrier);
}

} // namespace

extern "C" {

void GOMP_parallel_start(void (*fn)(void *), void *data, unsigned threads) {
  int count = place.count > 1 ? 1 : threads ? static_cast<int>(threads) : most;
  auto team = std::make_unique<Team>(fn, data, count);
  Place inside{team.get(), 0, count};
  made.emplace_back(place, std::move(team));
  place = inside;
}
void GOMP_parallel_end(void) {
  place = made.back().first;
  made.pop_back();
}
void GOMP_parallel(void (*fn)(void *), void *data, unsigned threads, unsigned) {
  GOMP_parallel_start(fn, data, threads);
  fn(data);
  GOMP_parallel_end();
}
void GOMP_barrier(void) {
  if (place.team)
    place.team->wait();
}

/// Without a chunk size a member has one block of turns, as oneDNN's loops do.
bool GOMP_loop_static_start(long start, long end, long step, long chunk, long *first, long *last) {
  long turns = step > 0 ? (end - start + step - 1) / step : (start - end - step - 1) / -step;
  long each = (std::max(turns, 0L) + place.count - 1) / place.count, from = std::min(turns, each * place.number);
  if (chunk != 0)
    abort();
  *first = start + from * step;
  *last = start + std::min(turns, from + each) * step;
  return *first != *last;
}
bool GOMP_loop_static_next(long *, long *) { return false; }
void GOMP_loop_end_nowait(void) {}

int omp_get_thread_num(void) { return place.number; }
int omp_get_num_threads(void) { return place.count; }
int omp_get_max_threads(void) { return most; }
void omp_set_num_threads(int threads) { most = threads; }
int omp_in_parallel(void) { return place.count > 1; }
}
