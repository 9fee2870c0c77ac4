// SPDX-License-Identifier: Apache-2.0
// Subnormal numbers as zeros, for sums in the order of matrix tiles.
#ifndef MPT_RUNTIME_CPU_FLUSHSUBNORMALS_H
#define MPT_RUNTIME_CPU_FLUSHSUBNORMALS_H

#include <cstdint>

namespace mpt::rt {

/// While one lives that is `on`, subnormal operands and results on this thread are zeros of their sign. Compilers move
/// arithmetic across its ends, but no loads and stores: operands must come from memory, and results go there.
class FlushSubnormals {
public:
  explicit FlushSubnormals(bool on) : on(on), before(on ? read() : 0) { set(); }
  ~FlushSubnormals() { reset(); }
  void set() const {
    if (on)
      write(before | bits);
  }
  void reset() const {
    if (on)
      write(before);
  }
  FlushSubnormals(const FlushSubnormals &) = delete;
  FlushSubnormals &operator=(const FlushSubnormals &) = delete;

private:
#if defined(__x86_64__)
  using Word = uint32_t;
  static constexpr Word bits = 0x8040; // of results, and of operands
  static Word read() {
    Word word;
    asm volatile("stmxcsr %0" : "=m"(word)::"memory");
    return word;
  }
  static void write(Word word) { asm volatile("ldmxcsr %0" ::"m"(word) : "memory"); }
#elif defined(__aarch64__)
  using Word = uint64_t;
  static constexpr Word bits = 1 << 24;
  static Word read() {
    Word word;
    asm volatile("mrs %0, fpcr" : "=r"(word)::"memory");
    return word;
  }
  static void write(Word word) { asm volatile("msr fpcr, %0" ::"r"(word) : "memory"); }
#else
  using Word = int; // subnormal numbers stay
  static constexpr Word bits = 0;
  static Word read() { return 0; }
  static void write(Word) {}
#endif
  const bool on;
  const Word before;
};

} // namespace mpt::rt

#endif
