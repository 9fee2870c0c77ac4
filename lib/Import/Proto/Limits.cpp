// SPDX-License-Identifier: Apache-2.0
// Checks that the ONNX library does not make: nesting, calls of functions, sizes, equations of Einsum, parts of Split.
#include "Proto.h"

#include "mlir/IR/Diagnostics.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mpt;
using namespace ::onnx;

namespace {
/// Far above the depth of exported models, far below the stack limit of the library's recursive descent.
constexpr int deepestText = 256, deepestCalls = 256;
/// Nodes once functions are inlined: so many, or so many times the nodes of the file where that is more.
constexpr int64_t mostNodes = int64_t(1) << 18, mostCopies = 64;

/// One local function as a call graph sees it.
struct Function {
  llvm::StringMap<int64_t> calls; // how often by the function's key
  int64_t nodes = 0, depth = 1, callers = 0;
};

} // namespace

LogicalResult proto::checkTextDepth(StringRef text, Location loc) {
  int depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') {
      for (++i; i < text.size() && text[i] != '"'; ++i)
        i += text[i] == '\\';
    } else if (text[i] == '#') {
      while (i < text.size() && text[i] != '\n')
        ++i;
    } else if (StringRef("{([").contains(text[i])) {
      if (++depth > deepestText)
        return emitError(loc) << "expected brackets nested at most " << deepestText << " deep, got deeper ones";
    } else if (StringRef("})]").contains(text[i])) {
      --depth;
    }
  }
  return success();
}

static std::string keyOf(StringRef domain, StringRef name) {
  return ((domain == "ai.onnx" ? StringRef() : domain) + ":" + name).str();
}

/// Function calls end, are not nested too deeply, and do not multiply to more nodes than any model has.
static LogicalResult checkCalls(ModelProto &model, MLIRContext *context) {
  llvm::StringMap<Function> functions;
  int64_t written = 0;
  for (FunctionProto &function : *model.mutable_functions()) {
    auto [entry, fresh] = functions.try_emplace(keyOf(function.domain(), function.name()));
    if (!fresh && function.overload().empty())
      return emitError(proto::namedLoc(context, function.name()))
             << "expected distinct functions, got '" << entry->getKey() << "' twice";
    (void)proto::visitNodes(*function.mutable_node(), [&, &known = entry->second](NodeProto &node) {
      ++known.nodes;
      ++written;
      ++known.calls[keyOf(node.domain(), node.op_type())];
      return success();
    });
  }
  const int64_t most = std::max(mostNodes, written * mostCopies);
  // Callees before callers; a function that is never ready calls itself.
  llvm::StringMap<std::vector<StringRef>> callers;
  llvm::StringMap<int64_t> open;
  std::vector<StringRef> ready;
  for (auto &entry : functions) {
    int64_t &waits = open[entry.getKey()];
    for (auto &call : entry.second.calls)
      if (functions.contains(call.getKey())) {
        ++waits;
        callers[call.getKey()].push_back(entry.getKey());
      }
    if (waits == 0)
      ready.push_back(entry.getKey());
  }
  auto add = [&](int64_t &nodes, int64_t &depth, const llvm::StringMap<int64_t> &calls) {
    for (auto &call : calls) {
      auto callee = functions.find(call.getKey());
      if (callee == functions.end())
        continue;
      nodes = llvm::SaturatingMultiplyAdd<uint64_t>(callee->second.nodes, call.second, nodes);
      nodes = std::min<uint64_t>(nodes, most + 1);
      depth = std::max(depth, callee->second.depth + 1);
    }
  };
  for (size_t i = 0; i < ready.size(); ++i) {
    Function &function = functions[ready[i]];
    add(function.nodes, function.depth, function.calls);
    for (StringRef caller : callers[ready[i]])
      if (--open[caller] == 0)
        ready.push_back(caller);
  }
  for (auto &entry : functions)
    if (open[entry.getKey()] > 0)
      return emitError(proto::namedLoc(context, entry.getKey()))
             << "expected functions that do not call themselves, got a cycle through '" << entry.getKey() << "'";
  Function graph;
  (void)proto::visitNodes(*model.mutable_graph()->mutable_node(), [&](NodeProto &node) {
    ++graph.calls[keyOf(node.domain(), node.op_type())];
    return success();
  });
  add(graph.nodes, graph.depth, graph.calls);
  if (graph.depth > deepestCalls || graph.nodes > most)
    return emitError(proto::namedLoc(context, model.graph().name()))
           << "expected function calls nested at most " << deepestCalls << " deep and at most " << most
           << " nodes in them, got more";
  return success();
}

/// Terms of letters and at most one ellipsis; the library's inference does not end on others. Spaces go.
static LogicalResult checkEquation(NodeProto &node, MLIRContext *context) {
  for (AttributeProto &attr : *node.mutable_attribute()) {
    if (attr.name() != "equation")
      continue;
    llvm::erase(*attr.mutable_s(), ' ');
    auto [left, right] = StringRef(attr.s()).split("->");
    SmallVector<StringRef> terms;
    left.split(terms, ',');
    terms.push_back(right);
    for (StringRef term : terms) {
      auto [before, after] = term.split("...");
      if (!llvm::all_of(before, llvm::isAlpha) || !llvm::all_of(after, llvm::isAlpha))
        return emitError(proto::namedLoc(context, proto::nodeName(node)))
               << "expected an equation of letters, commas, '...' and '->', got '" << attr.s() << "'";
    }
  }
  return success();
}

/// The library makes a list of as many results as Split says it has.
static LogicalResult checkSplit(const NodeProto &node, MLIRContext *context) {
  for (const AttributeProto &attr : node.attribute())
    if (attr.name() == "num_outputs" && attr.i() > node.output_size())
      return emitError(proto::namedLoc(context, proto::nodeName(node)))
             << "expected num_outputs to be the number of results, " << node.output_size() << ", got " << attr.i();
  return success();
}

LogicalResult proto::checkLimits(ModelProto &model, MLIRContext *context) {
  if (failed(checkCalls(model, context)))
    return failure();
  auto check = [&](NodeProto &node) {
    return node.op_type() == "Einsum"  ? checkEquation(node, context)
           : node.op_type() == "Split" ? checkSplit(node, context)
                                       : success();
  };
  for (FunctionProto &function : *model.mutable_functions())
    if (failed(proto::visitNodes(*function.mutable_node(), check)))
      return failure();
  return proto::visitNodes(*model.mutable_graph()->mutable_node(), check);
}
