// SPDX-License-Identifier: Apache-2.0
// Finds kernels that were emitted before by a structural hash of body and buffer types.
#include "Kernels.h"

#include "mpt/Dialect/MPT/MPTDialect.h"

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

FailureOr<Kernel> KernelTable::get(FusionOp fusion, ArrayRef<MemRefType> inputs, ArrayRef<MemRefType> outputs,
                                   ArrayRef<int64_t> alignments) {
  SmallVector<Type> types(inputs.begin(), inputs.end());
  types.append(outputs.begin(), outputs.end());
  auto &bucket = entries[hashOf(fusion, types)];
  for (Entry &entry : bucket)
    if (entry.types == types && ArrayRef<int64_t>(entry.alignments) == alignments &&
        OperationEquivalence::isRegionEquivalentTo(&fusion.getBody(), &cast<FusionOp>(entry.fusion).getBody(),
                                                   kIgnored))
      return entry.kernel;

  OpBuilder builder = OpBuilder::atBlockEnd(module.getBody());
  std::string name = "kernel" + std::to_string(count++);
  FailureOr<LaunchShape> shape = emitter(builder, fusion, inputs, outputs, name, alignments);
  if (failed(shape))
    return failure();
  auto function = module.lookupSymbol<func::FuncOp>(name);
  assert(function && "the emitter builds a function of the name it was given");
  bool several = module.lookupSymbol(name + "_1");
  for (size_t i = 0; i < outputs.size(); ++i)
    if (!several && function.getArgument(inputs.size() + i).use_empty())
      return fusion.emitOpError() << "expected a kernel that writes result " << i << ", got one that does not";
  function.setPrivate();
  setAttr<MPTDialect::OpsAttrHelper>(function, builder.getStringAttr(opsOf(fusion)));
  // Further launches of the kernel are functions named after it.
  func::FuncOp launch = function;
  for (unsigned i = 1; launch; ++i) {
    setAttr<MPTDialect::KernelAttrHelper>(launch);
    launch = module.lookupSymbol<func::FuncOp>(name + "_" + std::to_string(i));
  }
  Kernel kernel{function, *shape};

  // A detached fusion keeps the body comparable after the function that held it is gone.
  OperationState state(fusion.getLoc(), FusionOp::getOperationName());
  Region *body = state.addRegion();
  IRMapping mapping;
  fusion.getBody().cloneInto(body, mapping);
  owned.emplace_back(Operation::create(state));
  bucket.push_back({owned.back().get(), types, SmallVector<int64_t>(alignments), kernel});
  return kernel;
}

FailureOr<Kernel> KernelTable::getCopy(Location loc, MemRefType from, MemRefType to, ArrayRef<int64_t> alignments) {
  OpBuilder builder(loc.getContext());
  auto type = RankedTensorType::get(from.getShape(), from.getElementType());
  auto result = RankedTensorType::get(to.getShape(), to.getElementType());
  // A fusion whose body yields its argument; the operand only gives it a type.
  OwningOpRef<Operation *> operand(IotaOp::create(builder, loc, type, 0));
  OwningOpRef<Operation *> fusion(FusionOp::create(builder, loc, TypeRange{result}, operand->getResults()));
  Block &block = fusion->getRegion(0).emplaceBlock();
  Value value = block.addArgument(type, loc);
  builder.setInsertionPointToEnd(&block);
  if (type != result)
    value = CastOp::create(builder, loc, value, result.getElementType());
  YieldOp::create(builder, loc, value);
  FailureOr<Kernel> kernel = get(cast<FusionOp>(*fusion), from, to, alignments);
  fusion = nullptr;
  return kernel;
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
