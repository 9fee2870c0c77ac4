// SPDX-License-Identifier: Apache-2.0
// Finds kernels that were declared before by a structural hash of body and buffer types.
#include "Kernels.h"

#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/Train/TrainingParts.h"

#include "mlir/Dialect/Bufferization/IR/Bufferization.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/IRMapping.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::memory;

namespace {

constexpr auto kIgnored = OperationEquivalence::IgnoreLocations | OperationEquivalence::IgnoreDiscardableAttrs;

size_t hashOf(FusionOp fusion, ArrayRef<Type> types) {
  llvm::hash_code hash = llvm::hash_combine_range(types.begin(), types.end());
  for (Operation &op : fusion.getBody().front())
    hash = llvm::hash_combine(hash, OperationEquivalence::computeHash(&op, OperationEquivalence::ignoreHashValue,
                                                                      OperationEquivalence::ignoreHashValue, kIgnored));
  // The two largest values are the map's markers.
  return static_cast<size_t>(hash) >> 2;
}

/// Names of the ops in a fusion, each once, with how many there are.
std::string opsOf(FusionOp fusion) {
  llvm::MapVector<StringRef, unsigned> counts;
  for (Operation &op : fusion.getBody().front().without_terminator())
    if (!isa<ConstantOp>(op))
      ++counts[op.getName().stripDialect()];
  std::string text;
  llvm::raw_string_ostream out(text);
  llvm::interleave(
      counts, out,
      [&](const auto &entry) {
        out << entry.first;
        if (entry.second > 1)
          out << " x" << entry.second;
      },
      ", ");
  return text.empty() ? "copy" : text;
}

/// Sums of gradients may be emitted otherwise than sums of the forward pass (Bufferization.cpp).
bool haveEqualParts(FusionOp a, FusionOp b) {
  return llvm::equal(a.getBody().front(), b.getBody().front(),
                     [](Operation &x, Operation &y) { return statedPart(&x) == statedPart(&y); });
}

} // namespace

SmallVector<func::FuncOp> mpt::memory::partsOf(rt::LaunchOp launch) {
  SmallVector<func::FuncOp> parts;
  auto module = launch->getParentOfType<ModuleOp>();
  std::string name = launch.getCallee().str();
  while (auto part = module.lookupSymbol<func::FuncOp>(name)) {
    parts.push_back(part);
    name = (launch.getCallee() + "_" + Twine(parts.size())).str();
  }
  return parts;
}

FusionOp mpt::memory::declaredFusion(func::FuncOp function) {
  if (!hasAttr<MPTDialect::KernelAttrHelper>(function) || function.isDeclaration())
    return {};
  auto fusions = function.getBody().front().getOps<FusionOp>();
  return fusions.empty() ? FusionOp() : *fusions.begin();
}

KernelTable::KernelTable(ModuleOp module)
    : module(module), count(llvm::count_if(module.getOps<func::FuncOp>(), [](func::FuncOp function) {
        return hasAttr<MPTDialect::KernelAttrHelper>(function);
      })) {}

/// The body of a declared kernel.
static void addBody(func::FuncOp kernel, FusionOp fusion, ArrayRef<int64_t> alignments) {
  Location loc = fusion.getLoc();
  Block *block = kernel.addEntryBlock();
  OpBuilder builder = OpBuilder::atBlockEnd(block);
  SmallVector<Value> buffers;
  for (auto [argument, alignment] : llvm::zip_equal(block->getArguments(), alignments))
    buffers.push_back(alignment > 1 ? memref::AssumeAlignmentOp::create(builder, loc, argument, alignment).getResult()
                                    : Value(argument));
  SmallVector<Value> inputs;
  for (auto [argument, buffer] : llvm::zip(fusion.getBody().getArguments(), buffers))
    inputs.push_back(bufferization::ToTensorOp::create(builder, loc, argument.getType(), buffer, /*restrict=*/true));
  auto copy = FusionOp::create(builder, loc, fusion->getResultTypes(), inputs);
  IRMapping mapping;
  fusion.getBody().cloneInto(&copy.getBody(), mapping);
  for (auto [result, buffer] : llvm::zip_equal(copy->getResults(), ArrayRef(buffers).drop_front(inputs.size())))
    bufferization::MaterializeInDestinationOp::create(builder, loc, Type(), result, buffer, /*restrict=*/true,
                                                      /*writable=*/true);
  func::ReturnOp::create(builder, loc);
}

func::FuncOp KernelTable::get(FusionOp fusion, ArrayRef<MemRefType> inputs, ArrayRef<MemRefType> outputs,
                              ArrayRef<int64_t> alignments) {
  SmallVector<Type> types(inputs.begin(), inputs.end());
  types.append(outputs.begin(), outputs.end());
  auto &bucket = entries[hashOf(fusion, types)];
  for (Entry &entry : bucket)
    if (entry.kernel.getArgumentTypes() == ArrayRef<Type>(types) && ArrayRef<int64_t>(entry.alignments) == alignments &&
        OperationEquivalence::isRegionEquivalentTo(&fusion.getBody(), &declaredFusion(entry.kernel).getBody(),
                                                   kIgnored) &&
        haveEqualParts(fusion, declaredFusion(entry.kernel)))
      return entry.kernel;
  OpBuilder builder = OpBuilder::atBlockEnd(module.getBody());
  auto kernel = func::FuncOp::create(builder, fusion.getLoc(), "kernel" + std::to_string(count++),
                                     builder.getFunctionType(types, {}));
  kernel.setPrivate();
  setAttr<MPTDialect::OpsAttrHelper>(kernel, builder.getStringAttr(opsOf(fusion)));
  setAttr<MPTDialect::KernelAttrHelper>(kernel);
  addBody(kernel, fusion, alignments);
  bucket.push_back({kernel, SmallVector<int64_t>(alignments)});
  return kernel;
}

func::FuncOp KernelTable::getCopy(Location loc, MemRefType from, MemRefType to, ArrayRef<int64_t> alignments) {
  OpBuilder builder(loc.getContext());
  auto type = RankedTensorType::get(from.getShape(), from.getElementType());
  auto result = RankedTensorType::get(to.getShape(), to.getElementType());
  // A fusion outside of any function, whose body yields its argument.
  OperationState state(loc, FusionOp::getOperationName());
  state.addTypes(result);
  Block &block = state.addRegion()->emplaceBlock();
  Value value = block.addArgument(type, loc);
  builder.setInsertionPointToEnd(&block);
  if (type != result)
    value = CastOp::create(builder, loc, value, result.getElementType());
  YieldOp::create(builder, loc, value);
  OwningOpRef<Operation *> fusion(Operation::create(state));
  return get(cast<FusionOp>(*fusion), from, to, alignments);
}

bool mpt::memory::mayRunInPlace(func::FuncOp kernel, unsigned input, unsigned output) {
  if (kernel.getArgumentTypes()[input] != kernel.getArgumentTypes()[output])
    return false;
  auto pairs = getAttr<MPTDialect::InPlaceAttrHelper>(kernel);
  for (ArrayRef<int64_t> rest = pairs ? pairs.asArrayRef() : ArrayRef<int64_t>(); rest.size() >= 2;
       rest = rest.drop_front(2))
    if (rest[0] == input && rest[1] == output)
      return true;
  return false;
}
