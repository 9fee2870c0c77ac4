// SPDX-License-Identifier: Apache-2.0
// mpt_rt_recurrence: checks a recurrence, packs its weights once, and runs step after step over the threads.
#include "cpu/Recurrence.h"
#include "cpu/Amx.h"
#include "cpu/Gemm.h"

#include "core/Context.h"
#include "core/Error.h"
#include "core/Profile.h"
#include "core/Types.h"

#include <algorithm>

using namespace mpt::rt;

namespace {

mpt_status check(const mpt_recurrence_desc &d) {
  struct Counts {
    int64_t forwardInputs, forwardOutputs, backwardInputs, backwardOutputs;
  };
  constexpr Counts counts[] = {{4, 3, 7, 3}, {4, 2, 5, 3}, {3, 1, 4, 2}, {3, 1, 4, 2}, {3, 3, 5, 2}}; // by cell
  bool known = d.cell >= 0 && d.cell < static_cast<int64_t>(std::size(counts));
  const Counts &of = counts[known ? d.cell : 0];
  int64_t inputs = d.backward ? of.backwardInputs : of.forwardInputs;
  int64_t outputs = d.backward ? of.backwardOutputs : of.forwardOutputs;
  bool more = d.backward && d.cell == MPT_CELL_LSTM && d.num_inputs == inputs + 1;
  if (!known || d.steps < 1 || d.batch < 0 || d.hidden < 1 || (d.num_inputs != inputs && !more) ||
      d.num_outputs != outputs)
    return fail(MPT_INVALID_ARGUMENT, "recurrence: cell %lld with %lld inputs and %lld outputs",
                static_cast<long long>(d.cell), static_cast<long long>(d.num_inputs),
                static_cast<long long>(d.num_outputs));
  auto isKnown = [](int64_t type) { return type == MPT_FLOAT32 || type == MPT_FLOAT16 || type == MPT_BFLOAT16; };
  for (int64_t i = 0; i < d.num_inputs; ++i)
    if (!isKnown(d.input_types[i]))
      return fail(MPT_UNSUPPORTED, "recurrence: no kernel for %s", nameOf(d.input_types[i]));
  for (int64_t i = 0; i < d.num_outputs; ++i)
    if (!isKnown(d.output_types[i]))
      return fail(MPT_UNSUPPORTED, "recurrence: no kernel for %s", nameOf(d.output_types[i]));
  // The workspace is sized for FP32 operands, whichever kernel runs.
  if (d.workspace_bytes < mpt_recurrence_workspace(&d))
    return fail(MPT_INVALID_ARGUMENT, "recurrence: a workspace of %lld bytes is too small",
                static_cast<long long>(d.workspace_bytes));
  return MPT_OK;
}

/// Divides the workspace.
Recurrence prepare(const mpt_recurrence_desc &d, const RecurrenceKernels &kernels, void *const *buffers,
                   void *workspace) {
  Recurrence call{};
  call.desc = &d;
  call.kernels = &kernels;
  call.in = buffers;
  call.out = buffers + d.num_inputs;
  call.gates = mpt_recurrence_gates(d.cell);
  auto *next = static_cast<char *>(workspace);
  auto take = [&](int64_t floats) {
    void *memory = next;
    next += (floats * 4 + 63) / 64 * 64;
    return memory;
  };
  int64_t blocks = (d.hidden + kernels.columns - 1) / kernels.columns, state = d.batch * d.hidden;
  int64_t wholeChunks = d.batch * ((d.hidden + 31) / 32 * 32); // of the longest chunk
  int64_t operand = d.backward ? call.gates * wholeChunks : wholeChunks;
  call.weights = take(blocks * kernels.columns * call.gates * d.hidden);
  call.operand[0] = take(operand);
  call.operand[1] = take(operand);
  call.carry = static_cast<float *>(take(state));
  call.carryCell = static_cast<float *>(take(state));
  if (!d.backward && call.passes() > 1)
    call.kept = take(operand); // the workspace has it: backward, operands take more
  return call;
}

/// Sets the running values that the first step reads.
void begin(const Recurrence &call) {
  const mpt_recurrence_desc &d = *call.desc;
  int64_t state = d.batch * d.hidden;
  if (!d.backward)
    return gemmKernels().widen(d.input_types[2], call.in[2], state, call.carry);
  std::fill(call.carry, call.carry + state, 0.0f);
  std::fill(call.carryCell, call.carryCell + state, 0.0f);
}

} // namespace

bool mpt::rt::takesRecurrence(const RecurrenceKernels &kernels, const mpt_recurrence_desc &d) {
  return (!kernels.native || d.input_types[1] == MPT_BFLOAT16) && d.hidden % kernels.depthUnit == 0;
}

const RecurrenceKernels &mpt::rt::recurrenceKernels([[maybe_unused]] const mpt_recurrence_desc &d) {
#if defined(__x86_64__)
  bool wide = &gemmKernels() == &gemmAvx512;
  if (wide && takesRecurrence(recurrenceAmx, d) && hasAmx())
    return recurrenceAmx;
  if (wide && takesRecurrence(recurrenceBf16, d) && __builtin_cpu_supports("avx512bf16"))
    return recurrenceBf16;
  if (wide)
    return recurrenceAvx512;
  if (&gemmKernels() == &gemmAvx2)
    return recurrenceAvx2;
#endif
  return recurrencePortable;
}

void mpt::rt::runRecurrence(mpt_exec *exec, const mpt_recurrence_desc &desc, const RecurrenceKernels &kernels,
                            void *const *buffers, void *workspace) {
  Recurrence call = prepare(desc, kernels, buffers, workspace);
  begin(call);
  struct Team {
    const Recurrence &call;
    void (*run)(const Recurrence &, int64_t, int, int64_t, int64_t);
    int64_t step;
    int pass;
    int64_t blocks, tasks;
  } team{call, nullptr, 0, 0, (desc.hidden + kernels.columns - 1) / kernels.columns, 1};
  team.tasks = std::min<int64_t>(threadsOf(exec), team.blocks);
  auto everyBlock = [&](void (*run)(const Recurrence &, int64_t, int, int64_t, int64_t), int64_t step, int pass) {
    team.run = run;
    team.step = step;
    team.pass = pass;
    runTasks(
        static_cast<int>(team.tasks),
        [](void *data, int task) {
          auto &team = *static_cast<Team *>(data);
          team.run(team.call, team.step, team.pass, team.blocks * task / team.tasks,
                   team.blocks * (task + 1) / team.tasks);
        },
        &team);
  };
  everyBlock(
      [](const Recurrence &call, int64_t, int, int64_t begin, int64_t end) { call.kernels->pack(call, begin, end); }, 0,
      0);
  if (!desc.backward) {
    for (int64_t i = 0; i < desc.steps; ++i)
      for (int pass = 0; pass < call.passes(); ++pass)
        everyBlock(kernels.forward, i, pass);
    return;
  }
  for (int64_t i = desc.steps - 1; i >= 0; --i)
    for (int pass = 0; pass < call.passes(); ++pass)
      everyBlock(kernels.backward, i, pass);
  everyBlock(kernels.backward, -1, 0);
}

extern "C" int32_t mpt_rt_recurrence(mpt_exec *exec, int64_t, const mpt_recurrence_desc *desc, void *const *buffers,
                                     void *workspace) {
  ProfiledCall profiled(exec);
  if (mpt_status status = check(*desc); status != MPT_OK)
    return status;
  runRecurrence(exec, *desc, recurrenceKernels(*desc), buffers, workspace);
  return MPT_OK;
}
