// SPDX-License-Identifier: Apache-2.0
// Graphs of attention against cuDNN itself, where its library is: on processors that are only described to it, it has
// to have an engine for each and to make the plan. Needs no GPU, runs nothing. Arguments: cuDNN, a fake driver.
#include "DescribedProcessor.h"

#include <chrono>
#include <cstring>
#include <ctime>
#include <thread>
#include <vector>

using namespace mpt::rt;
using namespace mpt::test;

namespace {

struct Case {
  const char *name;
  int64_t batch, heads, kvHeads, queries, keys, depth, valueDepth, type;
  int bias; // 0: none, 1: full, 2: by key, 3: without a batch and heads
  bool biasInSingle, causal;
};

constexpr Case cases[] = {
    {"GPT-2", 4, 12, 12, 1024, 1024, 64, 64, MPT_BFLOAT16, 0, false, true},
    {"BERT", 64, 12, 12, 128, 128, 64, 64, MPT_FLOAT16, 0, false, false},
    {"BERT with a mask", 64, 12, 12, 128, 128, 64, 64, MPT_FLOAT16, 2, false, false},
    {"BERT with a mask in FP32", 64, 12, 12, 128, 128, 64, 64, MPT_BFLOAT16, 2, true, false},
    {"full bias", 4, 12, 12, 128, 128, 64, 64, MPT_FLOAT16, 1, false, false},
    {"causal with a bias, uneven", 4, 4, 4, 77, 77, 64, 64, MPT_FLOAT16, 3, false, true},
    {"shared keys", 2, 32, 8, 512, 512, 128, 128, MPT_BFLOAT16, 0, false, true},
    {"other queries than keys", 2, 4, 4, 100, 37, 32, 32, MPT_FLOAT16, 0, false, false},
    {"deeper values", 2, 4, 4, 128, 128, 64, 128, MPT_BFLOAT16, 0, false, false},
    {"vision", 2, 4, 4, 197, 197, 72, 72, MPT_FLOAT16, 0, false, false},
    {"tiny", 2, 2, 2, 5, 7, 8, 8, MPT_FLOAT16, 0, false, false},
};

mpt_attention_desc descOf(const Case &c) {
  mpt_attention_desc d{};
  d.batch = c.batch, d.heads = c.heads, d.kv_heads = c.kvHeads, d.queries = c.queries, d.keys = c.keys;
  d.depth = c.depth, d.value_depth = c.valueDepth, d.type = c.type, d.causal = c.causal, d.scale = 0.125;
  auto rows = [](int64_t (&strides)[3], int64_t heads, int64_t length, int64_t depth) {
    strides[0] = length * heads * depth, strides[1] = depth, strides[2] = heads * depth;
  };
  for (auto *strides : {&d.q_strides, &d.dq_strides})
    rows(*strides, c.heads, c.queries, c.depth);
  for (auto *strides : {&d.k_strides, &d.dk_strides})
    rows(*strides, c.kvHeads, c.keys, c.depth);
  for (auto *strides : {&d.v_strides, &d.dv_strides})
    rows(*strides, c.kvHeads, c.keys, c.valueDepth);
  for (auto *strides : {&d.o_strides, &d.do_strides})
    rows(*strides, c.heads, c.queries, c.valueDepth);
  const int64_t square = c.queries * c.keys;
  const int64_t biases[4][4] = {{}, {c.heads * square, square, c.keys, 1}, {c.keys, 0, 0, 1}, {0, 0, c.keys, 1}};
  memcpy(d.bias_strides, biases[c.bias], sizeof d.bias_strides);
  d.bias_type = !c.bias ? 0 : c.biasInSingle ? static_cast<int64_t>(MPT_FLOAT32) : c.type;
  return d;
}

/// A processor as graphs are planned for it.
class Processor : public DescribedProcessor {
public:
  using DescribedProcessor::DescribedProcessor;
  /// Plans `request` as the runtime does in its first run, and prints the result.
  bool plan(const std::string &name, const GraphRequest &request, int64_t plans) {
    const clock_t start = clock(); // of the processor: the machine may do other things too
    auto made = proposePlans(maker.api, target, request, {plans, false});
    const double seconds = static_cast<double>(clock() - start) / CLOCKS_PER_SEC;
    printf("%-44s sm_%-3d %zu plans, %6.2f s, %lld bytes, %s\n", name.c_str(), arch, made.size(), seconds,
           made.empty() ? -1LL : static_cast<long long>(made.front()->workspace),
           made.empty() ? "-" : made.front()->label.c_str());
    fflush(stdout);
    total += seconds;
    count += made.empty() ? 0 : 1;
    return !made.empty() && EXPECT(seconds < mostSeconds * static_cast<double>(plans));
  }

  /// The same on threads, each a request, as the runtime makes them.
  void planTogether(const std::vector<GraphRequest> &requests) {
    std::vector<size_t> made(requests.size());
    std::vector<std::thread> threads;
    const auto start = std::chrono::steady_clock::now();
    const clock_t before = clock();
    for (size_t i = 0; i < requests.size(); ++i)
      threads.emplace_back([&, i] { made[i] = proposePlans(maker.api, target, requests[i], {1, false}).size(); });
    for (std::thread &thread : threads)
      thread.join();
    printf("%zu plans on threads: %.2f s, of processors %.2f s\n", requests.size(),
           std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(),
           static_cast<double>(clock() - before) / CLOCKS_PER_SEC);
    for (size_t count : made)
      EXPECT(count == 1);
  }

  double total = 0;
  int count = 0;
  static constexpr double mostSeconds = 12; // a plan
};

constexpr Layer layers[] = {{"stem 7x7/2", 64, 224, 8, 64, 7, 2},     {"1x1 64-256", 64, 56, 64, 256, 1, 1},
                            {"3x3 128/2", 64, 56, 128, 128, 3, 2},    {"3x3 256", 64, 14, 256, 256, 3, 1},
                            {"1x1 2048-512", 64, 7, 2048, 512, 1, 1}, {"grouped 3x3", 32, 28, 128, 128, 3, 1, 32}};
constexpr const Layer *compiled = &layers[3];

/// Convolutions alone have engines that were compiled long ago; of the others, whose engines are compiled here, some.
void planConvolutions(Processor &on, size_t version) {
  const char *kinds[] = {"forward", "data", "weights"};
  const std::pair<int64_t, const char *> types[] = {{MPT_BFLOAT16, "bf16"}, {MPT_FLOAT16, "f16"}, {MPT_FLOAT32, "f32"}};
  for (const Layer &layer : layers)
    for (int64_t kind = 0; kind < 3; ++kind)
      for (auto [type, text] : types) {
        const std::string name = std::string(layer.name) + " " + kinds[kind] + " " + text;
        EXPECT(on.plan(name, requestConv(convolutionOf(layer, kind, type), version), 1));
        if (&layer == compiled && type == MPT_BFLOAT16)
          EXPECT(on.plan(name + " to f32", requestConv(convolutionOf(layer, kind, type, true), version), 1));
      }
  EXPECT(on.plan("bf16 with sums",
                 requestConvWithSums(convolutionOf(*compiled, MPT_CONV_FORWARD, MPT_BFLOAT16), version), 1));
  EXPECT(on.plan("f16 with sums", requestConvWithSums(convolutionOf(*compiled, MPT_CONV_FORWARD, MPT_FLOAT16), version),
                 1));
  std::vector<GraphRequest> several;
  for (int64_t channels : {64, 128})
    several.push_back(requestConvWithSums(
        convolutionOf({"", 8, 14, channels, channels, 3, 1}, MPT_CONV_FORWARD, MPT_BFLOAT16), version));
  on.planTogether(several);
  EXPECT(on.plan("bf16 with norm's sums",
                 requestConvWithNormSums(convolutionOf(*compiled, MPT_CONV_BACKWARD_DATA, MPT_BFLOAT16), version), 1));
}

} // namespace

int main(int argc, char **argv) {
  if (argc < 3)
    return 2;
  Cudnn cudnn(argv[1], argv[2]);
  if (!cudnn.takesDescriptions())
    return finish("cuDNN's library");
  for (int arch : {90, 80, 100}) {
    Processor on(cudnn.api, arch);
    if (arch == 90)
      planConvolutions(on, cudnn.version);
    for (const Case &c : cases) {
      // Each of these is compiled, too.
      if (arch != 90 && &c != cases)
        continue;
      const mpt_attention_desc d = descOf(c);
      for (bool gradient : {false, true})
        EXPECT(on.plan(std::string(c.name) + (gradient ? ", gradient" : ""),
                       requestAttention(d, gradient, cudnn.version), 1));
    }
    printf("sm_%d: %d graphs, %.1f s\n", arch, on.count, on.total);
  }
  return finish("cuDNN's library");
}
