// SPDX-License-Identifier: Apache-2.0
// Attention in tiles: the words that describe it to kernels, and their launches.
#include "cuda/AttentionTiles.h"

#include <algorithm>
#include <cmath>
#include <cstring>

using namespace mpt::rt;
using namespace mpt::attention;

namespace {

int64_t bitsOf(float value) {
  int32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

void fillWords(const mpt_attention_desc &d, const mpt_attention_dropout *dropout, Kind kind, int64_t (&words)[Words]) {
  const int64_t length = kind == Kind::Keys ? d.keys : d.queries, heads = kind == Kind::Keys ? d.kv_heads : d.heads;
  words[RowTiles] = (length + rowsOf(kind) - 1) / rowsOf(kind);
  words[Tiles] = words[RowTiles] * heads * d.batch;
  words[Heads] = d.heads;
  words[KeyHeads] = d.kv_heads;
  words[Queries] = d.queries;
  words[Keys] = d.keys;
  words[Depth] = d.depth;
  words[ValueDepth] = d.value_depth;
  words[Causal] = d.causal != 0;
  words[Scale] = bitsOf(static_cast<float>(d.scale));
  if (dropout) {
    words[Threshold] = static_cast<int64_t>(std::floor(std::ldexp(dropout->ratio, 32)));
    words[KeptScale] = bitsOf(static_cast<float>(1 / (1 - dropout->ratio)));
    words[Stream] = dropout->stream;
  }
  auto put = [&](int64_t at, const int64_t *strides, int64_t count) {
    std::copy(strides, strides + count, words + at);
  };
  put(Q, d.q_strides, 3), put(K, d.k_strides, 3), put(V, d.v_strides, 3), put(O, d.o_strides, 3);
  put(GradientO, d.do_strides, 3), put(GradientQ, d.dq_strides, 3), put(GradientK, d.dk_strides, 3);
  put(GradientV, d.dv_strides, 3), put(Bias, d.bias_strides, 4);
}

} // namespace

AttentionGeometry mpt::rt::geometryOf(const mpt_attention_desc &d) {
  AttentionGeometry g{};
  g.heads = d.heads;
  g.queries = d.queries;
  g.keys = d.keys;
  g.valueDepth = d.value_depth;
  g.causal = d.causal;
  memcpy(g.bias, d.bias_strides, sizeof g.bias);
  memcpy(g.output, d.o_strides, sizeof g.output);
  memcpy(g.outputGradient, d.do_strides, sizeof g.outputGradient);
  return g;
}

mpt_status AttentionByTiles::make(CudaDevice &device, const mpt_attention_desc &desc,
                                  const mpt_attention_dropout *dropout, bool gradient,
                                  std::unique_ptr<AttentionByTiles> &out) {
  std::unique_ptr<AttentionByTiles> made(new AttentionByTiles(desc, dropout != nullptr, gradient));
  for (Kind kind : kinds) {
    if ((kind == Kind::Forward) == gradient)
      continue;
    int64_t words[Words] = {};
    fillWords(desc, dropout, kind, words);
    if (mpt_status status = device.place("attention", words, sizeof words, made->words[static_cast<int>(kind)]))
      return status;
  }
  AttentionGeometry g = geometryOf(desc);
  g.rows = desc.batch * desc.heads * desc.queries;
  if (gradient)
    if (mpt_status status = device.place("attention", &g, sizeof g, made->geometry))
      return status;
  out = std::move(made);
  return MPT_OK;
}

mpt_status AttentionByTiles::launch(CudaDevice &device, Kind kind, const std::vector<void *> &operands, void *key,
                                    const std::vector<void *> &rest) {
  std::vector<void *> args(operands.begin(), operands.begin() + (desc.bias_type ? 4 : 3));
  if (drops)
    args.push_back(key);
  args.insert(args.end(), rest.begin(), rest.end());
  args.push_back(words[static_cast<int>(kind)]->start);
  return device.launchNamed("attention", tileOf(kind, desc, drops).name(), args.data());
}

mpt_status AttentionByTiles::run(CudaDevice &device, const std::vector<void *> &p, void *key) {
  for (size_t i = 0; i < p.size(); ++i)
    if (i != 3 && i != 5 && reinterpret_cast<uintptr_t>(p[i]) % 16)
      return fail(MPT_INVALID_ARGUMENT, "attention: expected operands at multiples of 16 bytes, got operand %zu at %p",
                  i, p[i]);
  if (!gradient)
    return launch(device, Kind::Forward, p, key, {p[4], p[5]});
  void *sums = device.scratch(desc.batch * desc.heads * desc.queries * 4);
  if (!sums)
    return MPT_OUT_OF_MEMORY;
  void *args[] = {p[4], p[6], sums, geometry->start};
  const std::string type = suffixOf(desc.type);
  if (mpt_status status = device.launchNamed("attention", "mpt_attention_delta_" + type, args))
    return status;
  if (mpt_status status = launch(device, Kind::Queries, p, key, {p[6], p[5], sums, p[7]}))
    return status;
  return launch(device, Kind::Keys, p, key, {p[6], p[5], sums, p[8], p[9]});
}
