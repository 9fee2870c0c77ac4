// Core graphs to ONNX files: one graph, initializers from state, outputs from results and writes.
#include "mpt/Export/Export.h"

#include "Writer.h"
#include "mpt/Support/Files.h"

#include "mlir/IR/AsmState.h"
#include "mlir/IR/DialectResourceBlobManager.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

using namespace mlir;
using namespace mpt;
namespace pb = ::ONNX_NAMESPACE;

namespace {

const ExportRules &exportRules() {
  static const ExportRules rules = [] {
    ExportRules table;
    addElementwiseRules(table);
    addShapeRules(table);
    addContractionRules(table);
    addPoolingRules(table);
    addReduceRules(table);
    addNormRules(table);
    return table;
  }();
  return rules;
}

/// Replaces composites that have no rule by their decompositions, until none is left.
void decomposeWithoutRule(func::FuncOp function) {
  bool changed = true;
  while (changed) {
    changed = false;
    for (Operation &op : llvm::make_early_inc_range(function.getBody().front())) {
      auto composite = dyn_cast<Decomposable>(op);
      if (!composite || exportRules().contains(op.getName().getStringRef()))
        continue;
      OpBuilder builder(&op);
      FailureOr<SmallVector<Value>> values = composite.decompose(builder);
      if (failed(values))
        continue;
      op.replaceAllUsesWith(*values);
      op.erase();
      changed = true;
    }
  }
}

/// FP32 elements in another float type, each rounded to nearest even; null for contents that cannot be read.
ElementsAttr convert(ElementsAttr value, RankedTensorType type) {
  auto target = dyn_cast<FloatType>(type.getElementType());
  if (!target || !value.getElementType().isF32())
    return {};
  auto round = [&](float number) {
    APFloat result(number);
    bool loses;
    result.convert(target.getFloatSemantics(), APFloat::rmNearestTiesToEven, &loses);
    return result;
  };
  if (auto dense = dyn_cast<DenseElementsAttr>(value); dense && dense.isSplat())
    return DenseElementsAttr::get(type, round(dense.getSplatValue<float>()));
  SmallVector<APFloat> numbers;
  auto resource = dyn_cast<DenseF32ResourceElementsAttr>(value);
  if (auto dense = dyn_cast<DenseElementsAttr>(value))
    for (float number : dense.getValues<float>())
      numbers.push_back(round(number));
  else if (auto contents = resource ? resource.tryGetAsArrayRef() : std::nullopt)
    for (float number : *contents)
      numbers.push_back(round(number));
  else
    return {};
  return DenseElementsAttr::get(type, ArrayRef<APFloat>(numbers));
}

class FunctionExport {
public:
  FunctionExport(ModuleOp module, func::FuncOp function, pb::GraphProto &graph)
      : module(module), function(function), graph(graph), writer(graph) {}

  LogicalResult run() {
    graph.set_name(function.getName().str());
    for (auto [i, argument] : llvm::enumerate(function.getArguments())) {
      auto name = function.getArgAttrOfType<StringAttr>(i, "mpt.name");
      writer.set(argument, writer.unique(name ? name.getValue() : "input"));
      describe(*graph.add_input(), writer.get(argument), argument.getType());
    }
    for (Operation &op : function.getBody().front())
      if (failed(exportOp(op)))
        return failure();
    return success();
  }

private:
  void describe(pb::ValueInfoProto &info, StringRef name, Type type) {
    auto tensor = cast<RankedTensorType>(type);
    info.set_name(name.str());
    pb::TypeProto_Tensor &proto = *info.mutable_type()->mutable_tensor_type();
    proto.set_elem_type(onnxElementType(tensor.getElementType()));
    proto.mutable_shape();
    for (int64_t extent : tensor.getShape())
      proto.mutable_shape()->add_dim()->set_dim_value(extent);
  }

  /// Gives `value` the name of a graph output.
  void output(Value value, StringRef name) {
    pb::NodeProto &node = *graph.add_node();
    node.set_op_type("Identity");
    node.add_input(writer.get(value));
    node.add_output(writer.unique(name));
    node.set_name(node.output(0));
    describe(*graph.add_output(), node.output(0), value.getType());
  }

  LogicalResult exportOp(Operation &op) {
    writer.startOp(op.getLoc());
    if (auto read = dyn_cast<train::ReadOp>(op))
      return exportRead(read);
    if (auto write = dyn_cast<train::WriteOp>(op)) {
      if (write.getCondition())
        return op.emitOpError() << "expected an unconditional write; run --fusion-lower-train first";
      output(write.getValue(), (write.getState() + "_next").str());
      return success();
    }
    if (isa<func::ReturnOp>(op)) {
      for (auto [i, value] : llvm::enumerate(op.getOperands())) {
        auto name = function.getResultAttrOfType<StringAttr>(i, "mpt.name");
        output(value, name ? name.getValue() : "output");
      }
      return success();
    }
    auto rule = exportRules().find(op.getName().getStringRef());
    if (rule == exportRules().end())
      return op.emitOpError() << "has no ONNX form";
    return rule->second(&op, writer);
  }

  /// What a state holds before the first step: its value, that of the state it starts `from`, or zeros for slots.
  ElementsAttr initialValue(train::StateOp state) {
    if (ElementsAttr value = state.getValueAttr())
      return value;
    auto type = cast<RankedTensorType>(state.getType());
    if (auto from = state->getAttrOfType<StringAttr>("from"))
      if (auto source = module.lookupSymbol<train::StateOp>(from.getValue()); source && source.getValueAttr())
        return convert(source.getValueAttr(), type);
    if (state.getRole() == train::Role::slot || state.getRole() == train::Role::accumulator)
      return cast<ElementsAttr>(Builder(state.getContext()).getZeroAttr(type));
    return {};
  }

  LogicalResult exportRead(train::ReadOp read) {
    auto [known, isNew] = states.try_emplace(read.getState());
    if (isNew) {
      auto state = module.lookupSymbol<train::StateOp>(read.getState());
      ElementsAttr value = initialValue(state);
      if (!value)
        return state.emitOpError() << "expected an initial value to export";
      known->second = writer.initializer(value, state.getSymName());
    }
    writer.set(read.getValue(), known->second);
    return success();
  }

  ModuleOp module;
  func::FuncOp function;
  pb::GraphProto &graph;
  OnnxWriter writer;
  llvm::StringMap<OnnxValue> states;
};

/// Moves tensors of 1 KiB and more to `data`, leaving references to `file`.
void externalize(pb::GraphProto &graph, raw_ostream &data, StringRef file) {
  uint64_t offset = 0;
  for (pb::TensorProto &tensor : *graph.mutable_initializer()) {
    if (tensor.raw_data().size() < 1024)
      continue;
    uint64_t padded = llvm::alignTo(offset, 4096);
    data.write_zeros(padded - offset);
    data << tensor.raw_data();
    auto add = [&](const char *key, std::string value) {
      pb::StringStringEntryProto &entry = *tensor.add_external_data();
      entry.set_key(key);
      entry.set_value(std::move(value));
    };
    add("location", file.str());
    add("offset", std::to_string(padded));
    add("length", std::to_string(tensor.raw_data().size()));
    offset = padded + tensor.raw_data().size();
    tensor.clear_raw_data();
    tensor.set_data_location(pb::TensorProto::EXTERNAL);
  }
}

LogicalResult write(Location loc, StringRef path, llvm::function_ref<void(raw_ostream &)> print) {
  if (llvm::Error error = writeFile(path, print))
    return emitError(loc) << llvm::toString(std::move(error));
  return success();
}

} // namespace

LogicalResult mpt::exportOnnx(ModuleOp module, func::FuncOp function, StringRef path) {
  OwningOpRef<func::FuncOp> copy = function.clone();
  decomposeWithoutRule(*copy);
  pb::ModelProto model;
  model.set_ir_version(exportIRVersion);
  model.set_producer_name("mpt");
  pb::OperatorSetIdProto &opset = *model.add_opset_import();
  opset.set_version(exportOpset);
  if (failed(FunctionExport(module, *copy, *model.mutable_graph()).run()))
    return failure();
  constexpr uint64_t inlineLimit = uint64_t(1) << 30;
  if (model.ByteSizeLong() > inlineLimit) {
    std::string data = (path + ".data").str();
    if (failed(write(module.getLoc(), data, [&](raw_ostream &os) {
          externalize(*model.mutable_graph(), os, llvm::sys::path::filename(data));
        })))
      return failure();
  }
  std::string bytes;
  if (!model.SerializeToString(&bytes))
    return module.emitError() << "cannot write '" << path << "': expected a model below 2 GiB without its weights";
  return write(module.getLoc(), path, [&](raw_ostream &os) { os << bytes; });
}
