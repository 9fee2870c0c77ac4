// SPDX-License-Identifier: Apache-2.0
// Code for a device, as far as the fake driver reads it: the kernels and their parameters.
#ifndef MPT_TEST_CUDA_STANDIN_CODE_H
#define MPT_TEST_CUDA_STANDIN_CODE_H

#include <cstdint>
#include <memory>
#include <string>

namespace standin {

struct Entry {
  int64_t args = 0;       // parameters; not read of machine code
  int64_t threads = 1024; // most of a block
  int shared = 48 * 1024; // most dynamic shared memory
};

class DeviceCode {
public:
  virtual ~DeviceCode() = default;
  /// Text that ends in a zero byte (PTX), or an ELF image (machine code).
  static std::unique_ptr<DeviceCode> read(const char *image);
  virtual bool find(const std::string &kernel, Entry &out) const = 0;
};

} // namespace standin

#endif
