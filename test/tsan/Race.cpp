// SPDX-License-Identifier: Apache-2.0
// A race between members of a team, which scripts/tsan.sh has to notice before it believes in silence.
#include <cstdio>

extern "C" void GOMP_parallel(void (*fn)(void *), void *data, unsigned threads, unsigned flags);

int main() {
  int sum = 0;
  GOMP_parallel([](void *data) { ++*static_cast<int *>(data); }, &sum, 4, 0);
  printf("%d\n", sum);
}
