// SPDX-License-Identifier: Apache-2.0
// Which of cuDNN's plans are taken, in the fake cuDNN: on threads, the fastest, the one of a saved state.
#include "Support.h"

#include "cuda/ConvGraph.h"
#include "cuda/PlanCache.h"

#include <chrono>
#include <unistd.h>

using namespace mpt::rt;
using namespace mpt::test;

namespace {

const StandInLibrary &standIn() {
  static const StandInLibrary library;
  return library;
}

/// 1x1 convolutions of two images of 3x3 pixels.
mpt_conv_desc convOf(int64_t channels, int64_t type = MPT_BFLOAT16, bool isWide = false) {
  mpt_conv_desc d{};
  d.kind = MPT_CONV_FORWARD, d.n = 2, d.ic = d.oc = channels, d.groups = 1;
  d.x_type = d.w_type = d.y_type = type;
  if (isWide)
    d.y_type = MPT_FLOAT32;
  for (int i = 0; i < 3; ++i)
    d.in[i] = d.out[i] = i ? 3 : 1, d.kernel[i] = d.stride[i] = d.dilation[i] = 1;
  return d;
}

/// A device of the fake driver, and memory for the operands of any of these convolutions.
class Machine {
public:
  explicit Machine(Effort search) {
    const cu::Driver *api = nullptr;
    CudaOptions options;
    options.cudnn = options.cublaslt = STANDIN;
    options.cache = "";
    options.search = search;
    module.name = "none";
    if (cu::openDriver(STANDIN, api) != MPT_OK)
      exit(1);
    device = std::make_unique<CudaDevice>(*api, module, options);
    EXPECT(device->open(0) == MPT_OK);
    scope = std::make_unique<ContextScope>(*device);
    for (int i = 0; i < 5; ++i) {
      memory.push_back(device->allocate(1 << 16));
      pointers.push_back(memory.back()->start);
    }
  }
  ~Machine() {
    memory.clear();
    scope.reset();
  }
  PlanCache &plans() { return *device->convolutions()->plans; }
  GraphRequest ask(const mpt_conv_desc &d) { return requestConv(d, device->convolutions()->api.GetVersion()); }
  /// The label of the chosen plan; empty for nothing.
  std::string choose(const GraphRequest &request, const PlanCache::Alternative &otherwise = {}) {
    const size_t count = request.key.rfind("conv sums", 0) == 0 ? 5 : 3;
    auto plan = plans().find(request, {pointers.begin(), pointers.begin() + static_cast<long>(count)}, otherwise);
    return plan ? static_cast<EnginePlan &>(*plan).label : "";
  }

  mpt_module_desc module{};
  std::unique_ptr<CudaDevice> device;
  std::unique_ptr<ContextScope> scope;
  std::vector<std::unique_ptr<Memory>> memory;
  std::vector<void *> pointers;
};

/// An environment variable of the fake libraries for as long as this lives.
class Variable {
public:
  Variable(const char *name, const char *value) : name(name) { setenv(name, value, 1); }
  Variable(const Variable &) = delete;
  ~Variable() { unsetenv(name); }

private:
  const char *const name;
};

/// Engines 0 to 3 of the fake cuDNN are not exact, the next ones are, two of a number; the seventh of them is the
/// fastest.
void testFastest() {
  Variable fastest("MPT_STANDIN_FASTEST_ENGINE", "7");
  Machine off(Effort::Off), quick(Effort::Quick), full(Effort::Full);
  for (int64_t type : {MPT_BFLOAT16, MPT_FLOAT32}) {
    EXPECT(off.choose(off.ask(convOf(8, type))) == "0/2/2=0");
    EXPECT(quick.choose(quick.ask(convOf(8, type))) == "0/2/2=1");
    EXPECT(full.choose(full.ask(convOf(8, type))) == "0/5/2=1");
  }
  // Engines that round FP32 to TF32 are taken where that is allowed: the third fake one is the first such one.
  Variable allowed("MPT_STANDIN_TF32", "1");
  Machine machine(Effort::Off);
  EXPECT(machine.choose(requestConv(convOf(8, MPT_FLOAT32), 92800, true)) == "0/1/2=0");
  EXPECT(machine.choose(requestConv(convOf(16), 92800, true)) == "0/2/2=0"); // 16 bits stay as they are
}

void testShort() {
  const int64_t before = standIn().now().captures;
  Machine machine(Effort::Full);
  EXPECT(!machine.choose(machine.ask(convOf(8))).empty());
  EXPECT(standIn().now().captures - before == 12); // a graph of several runs for each plan
}

/// Padding that only differs where nothing is read is none to cuDNN; other padding is not for it.
void testPadding() {
  Machine machine(Effort::Off);
  mpt_conv_desc d = convOf(8);
  for (int i = 1; i < 3; ++i)
    d.in[i] = 4, d.out[i] = 2, d.kernel[i] = d.stride[i] = 2, d.pad_high[i] = 1;
  EXPECT(!machine.choose(machine.ask(d)).empty());
  d.in[1] = 3; // the last filter reads the padding
  EXPECT(machine.ask(d).forms.empty());
}

/// Plans are made side by side, each thread with a handle of its own (the fake cuDNN checks).
void testThreads() {
  Variable slow("MPT_STANDIN_PLAN_MS", "60");
  Machine machine(Effort::Quick);
  constexpr int convolutions = 8;
  for (int i = 1; i <= convolutions; ++i)
    machine.plans().expect(machine.ask(convOf(8 * i)));
  auto seconds = [](auto body) {
    const auto start = std::chrono::steady_clock::now();
    body();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  constexpr double alone = convolutions * 2 * 0.06;
  EXPECT(seconds([&] { machine.plans().build(); }) < 0.8 * alone);
  EXPECT(seconds([&] {
           for (int i = 1; i <= convolutions; ++i)
             EXPECT(!machine.choose(machine.ask(convOf(8 * i))).empty());
         }) < 0.3 * alone); // they are there
}

/// Convolutions with an FP32 result: 9.19 has other engines for them, and there may be none.
void testWide() {
  for (const char *version : {"91900", "92800"}) {
    Variable cudnn("MPT_STANDIN_CUDNN", version);
    Machine machine(Effort::Quick);
    const std::string label = machine.choose(machine.ask(convOf(8, MPT_FLOAT16, true)));
    EXPECT(label.substr(0, 2) == (version[2] == '9' ? "1/" : "0/"));
  }
  Variable none("MPT_STANDIN_NO_WIDE", "1");
  Machine machine(Effort::Quick);
  EXPECT(machine.choose(machine.ask(convOf(8, MPT_FLOAT16, true))).empty());
}

/// A convolution with sums, or one without and a kernel: the one that took less time.
void testApart() {
  for (float otherwise : {1.0f, 100.0f, -1.0f}) {
    Machine full(Effort::Full), quick(Effort::Quick), off(Effort::Off);
    auto ask = [](Machine &on) { return requestConvWithSums(convOf(8), on.device->convolutions()->api.GetVersion()); };
    for (Machine *machine : {&full, &quick})
      EXPECT(machine->choose(ask(*machine), [=] { return otherwise; }).empty() == (otherwise == 1));
    EXPECT(!off.choose(ask(off), [=] { return otherwise; }).empty());
  }
}

/// Another process finds the choices of this one while it still runs, all but the last few.
void testKilled() {
  const std::string file = "/tmp/mpt-choices-" + std::to_string(getpid());
  const int count = 2 * Choices::together + 1;
  auto key = [](int i) { return "convolution " + std::to_string(i); };
  Choices running(file);
  for (int i = 0; i < count; ++i) {
    running.remember("device", key(i), Effort::Quick, "plan");
    Choices other(file);
    EXPECT((other.find("device", key(i), Effort::Quick) != nullptr) == ((i + 1) % Choices::together == 0));
  }
  Choices other(file);
  for (int i = 0; i < count; ++i)
    EXPECT((other.find("device", key(i), Effort::Quick) != nullptr) == (i + 1 < count));
  running.write();
  Choices later(file);
  EXPECT(later.find("device", key(count - 1), Effort::Quick) && !later.find("device", key(0), Effort::Full));
  unlink(file.c_str());
}

void testSaved() {
  std::string saved;
  {
    Variable fastest("MPT_STANDIN_FASTEST_ENGINE", "9");
    Machine machine(Effort::Full);
    EXPECT(machine.choose(machine.ask(convOf(8))) == "0/6/2=1");
    EXPECT(machine.choose(requestConvWithSums(convOf(8), 92800), [] { return 0.f; }).empty());
    saved = machine.device->choices();
  }
  Machine machine(Effort::Quick);
  EXPECT(machine.choose(machine.ask(convOf(8))) == "0/2/2=0");
  EXPECT(machine.device->takeChoices(saved, "a state"));
  EXPECT(!machine.device->takeChoices(saved, "a state")); // they are used already
  const int64_t before = standIn().now().convolutions;
  machine.plans().expect(machine.ask(convOf(8)));
  machine.plans().build();
  EXPECT(machine.choose(machine.ask(convOf(8))) == "0/6/2=1");
  EXPECT(machine.choose(requestConvWithSums(convOf(8), 92800), [] { return 100.f; }).empty());
  EXPECT(machine.device->synchronize() == MPT_OK && standIn().now().convolutions == before); // nothing was measured
}

} // namespace

int main(int argc, char **) {
  standIn().reset();
  if (argc > 1)
    testShort();
  else
    for (auto test : {testFastest, testPadding, testThreads, testWide, testApart, testKilled, testSaved})
      test();
  EXPECT(std::string(standIn().violations()).empty());
  fprintf(stderr, "%s", standIn().violations());
  return finish("choices of plans");
}
