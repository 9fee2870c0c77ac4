// SPDX-License-Identifier: Apache-2.0
// The engines that cuDNN has for the headline models' calls on a described sm_90, none of which may be of an older
// generation but for the forms listed here. Needs no GPU. Arguments: cuDNN, a fake driver, `all` for every shape.
#include "DescribedProcessor.h"

#include <cstring>
#include <elf.h>
#include <map>
#include <vector>

using namespace mpt::rt;
using namespace mpt::test;

namespace {

/// Forms whose first engine is made of Ampere's instructions (mma.sync) on sm_90, in cuDNN 9.19, and the remedy.
const std::map<std::string, const char *> older = {
    {"sums bf16", "measured against a plain convolution and a pass of its own"},
    {"norm's sums bf16", "measured against a plain convolution and a pass of its own"},
    {"forward bf16 to f32", "8-bit recipes alone; its sm_90 engine is the fifth that cuDNN proposes"},
};

/// Convolutions of ResNet-50 by shape, batch 256; the first six stand for all.
constexpr Layer layers[] = {{"1x1 64-256", 256, 56, 64, 256, 1, 1},         {"1x1 2048-512", 256, 7, 2048, 512, 1, 1},
                            {"3x3 256", 256, 14, 256, 256, 3, 1},           {"3x3/2 128", 256, 56, 128, 128, 3, 2},
                            {"1x1/2 512-1024", 256, 28, 512, 1024, 1, 2},   {"3x3 64", 256, 56, 64, 64, 3, 1},
                            {"1x1 64-64", 256, 56, 64, 64, 1, 1},           {"1x1 256-64", 256, 56, 256, 64, 1, 1},
                            {"1x1 256-128", 256, 56, 256, 128, 1, 1},       {"1x1 128-512", 256, 28, 128, 512, 1, 1},
                            {"1x1/2 256-512", 256, 56, 256, 512, 1, 2},     {"1x1 512-128", 256, 28, 512, 128, 1, 1},
                            {"3x3 128", 256, 28, 128, 128, 3, 1},           {"1x1 512-256", 256, 28, 512, 256, 1, 1},
                            {"3x3/2 256", 256, 28, 256, 256, 3, 2},         {"1x1 256-1024", 256, 14, 256, 1024, 1, 1},
                            {"1x1 1024-256", 256, 14, 1024, 256, 1, 1},     {"1x1 1024-512", 256, 14, 1024, 512, 1, 1},
                            {"3x3/2 512", 256, 14, 512, 512, 3, 2},         {"1x1 512-2048", 256, 7, 512, 2048, 1, 1},
                            {"1x1/2 1024-2048", 256, 14, 1024, 2048, 1, 2}, {"3x3 512", 256, 7, 512, 512, 3, 1}};
constexpr size_t few = 6;

struct Heads {
  const char *name;
  int64_t batch, heads, length, depth;
  bool causal;
};
constexpr Heads attentions[] = {{"GPT-2, half a batch", 8, 12, 1024, 64, true},
                                {"BERT", 64, 12, 128, 64, false},
                                {"hidden size 4096, quarter", 2, 32, 1024, 128, true}};

/// The kernel that an engine was compiled to, by the image that the driver was given.
struct Kernel {
  std::string name;
  int registers = 0;
};

/// The largest kernel of a cubin. An ELF of 64 bits; `.nv.info` has a word of registers for each symbol (attribute
/// 0x2f).
Kernel kernelOf(const unsigned char *image) {
  Kernel kernel;
  if (!image || memcmp(image, ELFMAG, SELFMAG) != 0)
    return kernel;
  const auto *header = reinterpret_cast<const Elf64_Ehdr *>(image);
  const auto *sections = reinterpret_cast<const Elf64_Shdr *>(image + header->e_shoff);
  auto textAt = [&](const Elf64_Shdr &section) { return reinterpret_cast<const char *>(image + section.sh_offset); };
  const char *names = textAt(sections[header->e_shstrndx]), *strings = nullptr;
  const Elf64_Shdr *info = nullptr, *symbols = nullptr;
  size_t most = 0;
  for (int i = 0; i < header->e_shnum; ++i) {
    const char *name = names + sections[i].sh_name;
    if (!strncmp(name, ".text.", 6) && sections[i].sh_size > most) {
      most = sections[i].sh_size;
      kernel.name = name + 6;
    } else if (!strcmp(name, ".nv.info")) {
      info = &sections[i];
    } else if (sections[i].sh_type == SHT_SYMTAB) {
      symbols = &sections[i];
      strings = textAt(sections[sections[i].sh_link]);
    }
  }
  constexpr uint16_t registerCount = 0x2f04; // attribute, and the format of one that has a size
  for (size_t at = 0; info && symbols && at + 12 <= info->sh_size;) {
    uint16_t word, size;
    uint32_t value[2];
    memcpy(&word, image + info->sh_offset + at, 2);
    memcpy(&size, image + info->sh_offset + at + 2, 2);
    memcpy(value, image + info->sh_offset + at + 4, sizeof value);
    const auto *symbol = reinterpret_cast<const Elf64_Sym *>(image + symbols->sh_offset) + value[0];
    if (word == registerCount && kernel.name == strings + symbol->st_name)
      kernel.registers = static_cast<int>(value[1]);
    at += 4 + ((word & 0xff) == 4 ? size : 0);
  }
  return kernel;
}

/// Engines that were compiled long ago have no image; knobs 27 and 28, of clusters of blocks, tell Hopper's.
std::string generationOf(const std::string &label, const Kernel &kernel) {
  if (kernel.name.empty())
    return label.find(",27=") != std::string::npos && label.find(",28=") != std::string::npos ? "sm90" : "older";
  const size_t at = kernel.name.find("sm");
  return at == std::string::npos ? "?" : kernel.name.substr(at, kernel.name.find('_', at) - at);
}

class Table {
public:
  explicit Table(const Cudnn &cudnn) : processor(cudnn.api, 90) {
    // A machine with a driver of its own has none.
    if (auto **see = static_cast<void (**)(const void *)>(dlsym(cudnn.driver, "mpt_see_code")); EXPECT(see))
      *see = [](const void *image) { compiled = kernelOf(static_cast<const unsigned char *>(image)); };
    printf("%-20s %-28s %-8s %-28s %10s %9s %s\n", "form", "shape", "made of", "engine", "workspace", "registers",
           "kernel");
  }

  void add(const std::string &form, const std::string &shape, const GraphRequest &request) {
    compiled = {};
    const auto plans = proposePlans(processor.maker.api, processor.target, request, {1, false, ""});
    if (!EXPECT(!plans.empty()))
      return;
    const std::string &label = plans.front()->label, generation = generationOf(label, compiled);
    printf("%-20s %-28s %-8s %-28s %10lld %9d %.60s\n", form.c_str(), shape.c_str(), generation.c_str(), label.c_str(),
           static_cast<long long>(plans.front()->workspace), compiled.registers, compiled.name.c_str());
    fflush(stdout);
    if (generation != "sm90")
      fallen[form] = shape;
  }

  /// A form that is older anywhere has to be listed, and a listed one has to be with the version of the list.
  void check(size_t version) const {
    for (const auto &[form, shape] : fallen)
      if (!EXPECT(older.count(form)))
        fprintf(stderr, "%s: expected an engine made for sm_90, got an older one at %s\n", form.c_str(), shape.c_str());
    for (const auto &[form, remedy] : older)
      if (version / 100 == 919 && !EXPECT(fallen.count(form)))
        fprintf(stderr, "%s: expected an older engine (%s), got none: take it off the list\n", form.c_str(), remedy);
  }

private:
  inline static Kernel compiled; ///< for the plan at hand
  DescribedProcessor processor;
  std::map<std::string, std::string> fallen; ///< older form -> the last shape
};

mpt_attention_desc descOf(const Heads &h) {
  mpt_attention_desc d{};
  d.batch = h.batch, d.heads = d.kv_heads = h.heads, d.queries = d.keys = h.length, d.depth = d.value_depth = h.depth;
  d.type = MPT_BFLOAT16, d.causal = h.causal, d.scale = 0.125;
  const int64_t row = h.heads * h.depth;
  for (auto *strides : {&d.q_strides, &d.k_strides, &d.v_strides, &d.dq_strides, &d.dk_strides, &d.dv_strides})
    (*strides)[0] = 3 * h.length * row, (*strides)[1] = h.depth, (*strides)[2] = 3 * row; // of one product
  for (auto *strides : {&d.o_strides, &d.do_strides})
    (*strides)[0] = h.length * row, (*strides)[1] = h.depth, (*strides)[2] = row;
  return d;
}

void addConvolutions(Table &table, const Layer &layer, size_t version) {
  const char *kinds[] = {"forward", "data", "weights"};
  for (int64_t kind = 0; kind < 3; ++kind) {
    table.add(std::string(kinds[kind]) + " bf16", layer.name,
              requestConv(convolutionOf(layer, kind, MPT_BFLOAT16), version));
    if (&layer == &layers[2])
      table.add(std::string(kinds[kind]) + " bf16 to f32", layer.name,
                requestConv(convolutionOf(layer, kind, MPT_BFLOAT16, true), version));
  }
  table.add("sums f16", layer.name, requestConvWithSums(convolutionOf(layer, MPT_CONV_FORWARD, MPT_FLOAT16), version));
  table.add("sums bf16", layer.name,
            requestConvWithSums(convolutionOf(layer, MPT_CONV_FORWARD, MPT_BFLOAT16), version));
  if (layer.stride == 1)
    table.add("norm's sums bf16", layer.name,
              requestConvWithNormSums(convolutionOf(layer, MPT_CONV_BACKWARD_DATA, MPT_BFLOAT16), version));
}

} // namespace

int main(int argc, char **argv) {
  if (argc < 3)
    return 2;
  const Cudnn cudnn(argv[1], argv[2]);
  if (!cudnn.takesDescriptions())
    return finish("cuDNN's engines");
  Table table(cudnn);
  const bool all = argc > 3 && !strcmp(argv[3], "all");
  for (const Layer &layer : layers)
    if (all || &layer < layers + few)
      addConvolutions(table, layer, cudnn.version);
  for (const Heads &heads : attentions)
    for (bool gradient : {false, true})
      table.add(gradient ? "attention's gradient" : "attention", heads.name,
                requestAttention(descOf(heads), gradient, cudnn.version));
  table.check(cudnn.version);
  return finish("cuDNN's engines");
}
