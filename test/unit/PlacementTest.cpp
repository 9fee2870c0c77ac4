// SPDX-License-Identifier: Apache-2.0
// Cast placement against an exhaustive search over all assignments: random problems, and random graphs of core
// operations under every built-in policy. PlacementTest [PROBLEMS [GRAPHS [SEED]]] prints a table.
#include "CoreGraph.h"
#include "Solver.h"

#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/Train/TrainDialect.h"
#include "mpt/Driver/Registration.h"
#include "mpt/Precision/BuiltinPolicies.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <cstdio>
#include <cstdlib>
#include <map>
#include <random>

using namespace mlir;
using namespace mpt;

namespace {

constexpr size_t mostFree = 14;
constexpr int64_t launchBytes = 4096;

std::mt19937_64 engine;
int64_t below(int64_t bound) { return std::uniform_int_distribution<int64_t>(0, bound - 1)(engine); }
bool oneIn(int64_t n) { return below(n) == 0; }

/// Both views' kinds, and bytes alone.
std::vector<CutWeights> allWeights() {
  return {{1, launchBytes, true}, {1, launchBytes}, {1, 0}, {1 << 10, launchBytes << 10, false, true}};
}

struct Counts {
  int64_t problems = 0, free = 0, cuts = 0, wrong = 0;
};

Labelling numbered(size_t number, size_t labels) {
  Labelling narrow(labels + 2, false);
  narrow[kNarrow] = true;
  for (size_t i = 0; i < labels; ++i)
    narrow[kWide + 1 + i] = number >> i & 1;
  return narrow;
}

/// Compares the cut with all assignments: its objective is least, and of all at this cost it has the fewest narrow.
void compare(const CastPlacement &placement, const CutWeights &weights, Counts &counts, const char *where) {
  size_t labels = placement.countFree();
  Labelling cut = placement.cut(weights);
  int64_t ours = placement.objectiveOf(cut, weights), best = INT64_MAX, fewest = 0;
  for (size_t number = 0; number < size_t(1) << labels; ++number) {
    int64_t cost = placement.objectiveOf(numbered(number, labels), weights), narrow = __builtin_popcountll(number);
    if (cost < best || (cost == best && narrow < fewest)) {
      best = cost;
      fewest = narrow;
    }
  }
  ++counts.cuts;
  if (ours == best && llvm::count(cut, true) - 1 == fewest)
    return;
  ++counts.wrong;
  std::fprintf(stderr, "%s: the cut costs %lld with %lld narrow labels, an assignment %lld with %lld\n", where,
               static_cast<long long>(ours), static_cast<long long>(llvm::count(cut, true) - 1),
               static_cast<long long>(best), static_cast<long long>(fewest));
}

// ---- random problems

/// Labels and values without a graph: every kind of producer, user and cost.
void randomProblem(Block &block, Counts &counts) {
  CastPlacement placement;
  SmallVector<Label> labels{kNarrow, kWide};
  size_t free = below(mostFree - 1) + 1;
  for (size_t i = 0; i < free; ++i)
    labels.push_back(placement.addFree({oneIn(2), oneIn(3) ? 0 : below(9) * 512}));
  auto label = [&] { return labels[below(static_cast<int64_t>(labels.size()))]; };
  for (BlockArgument value : block.getArguments().take_front(below(block.getNumArguments()) + 1)) {
    placement.produce(value, oneIn(8) ? kEither : label(), {below(12) * 384, oneIn(6)});
    for (int64_t i = 0, users = below(5); i < users; ++i)
      placement.use(value, label());
  }
  ++counts.problems;
  counts.free += static_cast<int64_t>(free);
  for (const CutWeights &weights : allWeights())
    compare(placement, weights, counts, "random problem");
}

// ---- random graphs

/// A step of 4 to 14 operations on square matrices, with parameters, some updated, and a seed somewhere.
OwningOpRef<ModuleOp> randomGraph(MLIRContext &context) {
  OpBuilder builder(&context);
  OwningOpRef<ModuleOp> module = ModuleOp::create(builder.getUnknownLoc());
  builder.setInsertionPointToEnd(module->getBody());
  int64_t n = int64_t(2) << below(7);
  auto type = RankedTensorType::get({n, n}, builder.getF32Type());
  auto parameters = below(4);
  for (int64_t i = 0; i < parameters; ++i)
    train::StateOp::create(builder, module->getLoc(), "w" + std::to_string(i), type, train::Role::parameter,
                           StringAttr(), DenseElementsAttr::get(type, 0.5f), /*frozen=*/false, StringAttr());
  auto function = func::FuncOp::create(builder, module->getLoc(), "step", builder.getFunctionType({type, type}, {}));
  Block *body = function.addEntryBlock();
  builder.setInsertionPointToEnd(body);
  SmallVector<Value> pool(body->getArguments());
  for (int64_t i = 0; i < parameters; ++i)
    pool.push_back(train::ReadOp::create(builder, builder.getUnknownLoc(), type, "w" + std::to_string(i)));
  int64_t count = 4 + below(11), seed = below(count);
  for (int64_t i = 0; i < count; ++i) {
    Location loc = NameLoc::get(builder.getStringAttr("node" + std::to_string(i)));
    GraphBuilder b(builder, loc);
    auto any = [&] {
      return pool[std::max<int64_t>(below(static_cast<int64_t>(pool.size())),
                                    below(static_cast<int64_t>(pool.size())))];
    };
    Value x = any(), y = any();
    switch (i == seed ? 100 : below(11)) {
    case 0:
    case 1:
    case 2:
      x = b.matmul(x, y, oneIn(2), oneIn(2));
      break;
    case 3:
      x = b.add(x, y);
      break;
    case 4:
      x = b.mul(x, y);
      break;
    case 5:
      x = b.make<ReluOp>(x);
      break;
    case 6:
      x = b.make<TanhOp>(x);
      break;
    case 7:
      x = b.make<ExpOp>(x);
      break;
    case 8:
      x = b.transpose(x, {1, 0});
      break;
    case 9:
      x = b.broadcastAlong(b.sum(x, {1}), {n, n}, {1});
      break;
    case 10:
      x = b.make<SoftmaxOp>(x.getType(), x, 1);
      break;
    default:
      x = b.splat(type, 1);
      setAttr<MPTDialect::SeedAttrHelper>(x.getDefiningOp());
    }
    pool.push_back(x);
  }
  for (int64_t i = 0; i < parameters; ++i)
    if (!oneIn(4))
      train::WriteOp::create(builder, builder.getUnknownLoc(), "w" + std::to_string(i), pool[pool.size() - 1 - i],
                             Value());
  func::ReturnOp::create(builder, builder.getUnknownLoc(), ValueRange{});
  return module;
}

void compareGraph(ModuleOp module, const Policy &policy, StringRef name, Counts &counts) {
  ConstantReader reader;
  CoreGraph asked(module, policy, CostModel(), reader);
  Posed posed = pose(asked);
  size_t labels = posed.placement.countFree();
  if (labels > mostFree)
    return;
  ++counts.problems;
  counts.free += static_cast<int64_t>(labels);
  compare(posed.placement, asked.weights(), counts, name.str().c_str());
}

} // namespace

int main(int argc, char **argv) {
  auto number = [&](int i, int64_t otherwise) { return argc > i ? std::atoll(argv[i]) : otherwise; };
  int64_t problems = number(1, 400), graphs = number(2, 60);
  engine.seed(static_cast<uint64_t>(number(3, 1)));
  DialectRegistry registry;
  registerAll(registry);
  MLIRContext context(registry, MLIRContext::Threading::DISABLED);
  context.loadAllAvailableDialects();

  std::map<std::string, Counts> rows;
  Block block;
  for (int i = 0; i < 20; ++i)
    block.addArgument(Float32Type::get(&context), UnknownLoc::get(&context));
  for (int64_t i = 0; i < problems; ++i)
    randomProblem(block, rows["(labels and values at random)"]);

  std::vector<std::pair<std::string, Policy>> policies;
  for (StringRef name : builtinPolicies()) {
    PolicyWishes wishes;
    wishes.name = name.str();
    FailureOr<Policy> policy = Policy::load(wishes, UnknownLoc::get(&context));
    if (failed(policy))
      return 2;
    policies.emplace_back(name.str(), *policy);
  }
  for (int64_t i = 0; i < graphs; ++i) {
    OwningOpRef<ModuleOp> module = randomGraph(context);
    for (const auto &[name, policy] : policies)
      if (policy.narrows())
        compareGraph(*module, policy, name, rows[name]);
  }

  int64_t wrong = 0, empty = 0;
  std::printf("| policy | problems | free labels, mean | cuts | not the least |\n|---|---|---|---|---|\n");
  for (const auto &[name, counts] : rows) {
    std::printf("| %s | %lld | %.1f | %lld | %lld |\n", name.c_str(), static_cast<long long>(counts.problems),
                double(counts.free) / double(std::max<int64_t>(counts.problems, 1)),
                static_cast<long long>(counts.cuts), static_cast<long long>(counts.wrong));
    wrong += counts.wrong;
    empty += counts.problems == 0;
  }
  return wrong || empty || rows.size() < 2;
}
