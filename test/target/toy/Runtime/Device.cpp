// SPDX-License-Identifier: Apache-2.0
// The runtime's half of a small target: host memory, one thread, plain loops; FP32 and no convolutions.
#include "core/Device.h"

#include "core/HostMemory.h"
#include "core/Trainer.h"

#include <cstring>
#include <vector>

using namespace mpt::rt;

const char *const mpt::rt::targetName = "toy";

namespace {

mpt_status copyAll(const Transfer *transfers, size_t count) {
  for (size_t i = 0; i < count; ++i)
    if (transfers[i].bytes)
      memcpy(transfers[i].to, transfers[i].from, static_cast<size_t>(transfers[i].bytes));
  return MPT_OK;
}

class ToyDevice : public Device {
public:
  bool sharesHostMemory() const override { return true; }
  std::unique_ptr<Memory> allocate(int64_t bytes) override { return allocateHost(bytes); }
  mpt_status upload(const Transfer *transfers, size_t count) override { return copyAll(transfers, count); }
  mpt_status download(const Transfer *transfers, size_t count) override { return copyAll(transfers, count); }
  mpt_status locate(const void *, bool &onHost) override {
    onHost = true;
    return MPT_OK;
  }
  mpt_status stage(const mpt_function_desc &f, FunctionState &state) override {
    copies.clear();
    for (int64_t k = 0; k < f.num_inputs; ++k) {
      copies.push_back(allocateHost(f.inputs[k].bytes));
      if (!copies.back())
        return fail(MPT_OUT_OF_MEMORY, "no memory for input '%s'", f.inputs[k].name);
      const void *&given = state.inputPointers[static_cast<size_t>(k)];
      if (f.inputs[k].bytes)
        memcpy(copies.back()->start, given, static_cast<size_t>(f.inputs[k].bytes));
      given = copies.back()->start;
    }
    return MPT_OK;
  }
  mpt_status run(const mpt_function_desc &f, FunctionState &, mpt_exec &exec) override {
    return static_cast<mpt_status>(f.entry(&exec));
  }
  mpt_status synchronize() override { return MPT_OK; }
  int64_t stagingBytes() const override { return 0; }

private:
  std::vector<std::unique_ptr<Memory>> copies;
};

} // namespace

int mpt::rt::threadsOf(const mpt_exec *) { return 1; }

mpt_status mpt::rt::checkMachine(const mpt_module_desc &, const char *) { return MPT_OK; }

mpt_status mpt::rt::openDevice(const mpt_module_desc &, int, Options &, std::unique_ptr<Device> &out) {
  out = std::make_unique<ToyDevice>();
  return MPT_OK;
}

extern "C" {

void mpt_toy_parallel(mpt_exec *, mpt_kernel kernel, void *const *args, int64_t n, int64_t) { kernel(args, 0, n); }
void mpt_toy_copy(mpt_exec *, void *dst, const void *src, int64_t bytes) {
  memcpy(dst, src, static_cast<size_t>(bytes));
}
void mpt_toy_zero(mpt_exec *, void *dst, int64_t bytes) { memset(dst, 0, static_cast<size_t>(bytes)); }
void mpt_toy_check(mpt_exec *exec, const mpt_check_desc *desc, const void *data) { mpt_rt_check(exec, desc, data); }

int32_t mpt_toy_gemm(mpt_exec *, int64_t, const mpt_gemm_desc *g, const void *a, const void *b, const void *bias,
                     void *d) {
  if (g->a_type != MPT_FLOAT32 || g->b_type != MPT_FLOAT32 || g->d_type != MPT_FLOAT32 ||
      (g->flags & ~(MPT_GEMM_BIAS | MPT_GEMM_RELU | MPT_GEMM_ACCUMULATE)))
    return fail(MPT_UNSUPPORTED, "target toy has matrix multiplications in FP32 with bias and ReLU alone");
  auto *left = static_cast<const float *>(a), *right = static_cast<const float *>(b);
  auto *out = static_cast<float *>(d);
  for (int64_t p = 0; p < g->batch0; ++p)
    for (int64_t q = 0; q < g->batch1; ++q)
      for (int64_t i = 0; i < g->m; ++i)
        for (int64_t j = 0; j < g->n; ++j) {
          float sum = 0;
          for (int64_t k = 0; k < g->k; ++k)
            sum += left[p * g->a_batch0 + q * g->a_batch1 + i * g->a_row + k * g->a_col] *
                   right[p * g->b_batch0 + q * g->b_batch1 + k * g->b_row + j * g->b_col];
          sum *= static_cast<float>(g->alpha);
          if (g->flags & MPT_GEMM_BIAS)
            sum += static_cast<const float *>(bias)[j];
          if ((g->flags & MPT_GEMM_RELU) && sum < 0)
            sum = 0;
          float &place = out[p * g->d_batch0 + q * g->d_batch1 + i * g->d_row + j * g->d_col];
          place = g->flags & MPT_GEMM_ACCUMULATE ? place + sum : sum;
        }
  return MPT_OK;
}

int32_t mpt_toy_conv(mpt_exec *, int64_t, const mpt_conv_desc *, const void *, void *, void *, void *, void *) {
  return fail(MPT_UNSUPPORTED, "target toy has no convolutions");
}

} // extern "C"
