// SPDX-License-Identifier: Apache-2.0
// Where in the file a tensor comes from: noted in its metadata before preparation moves, renames and copies tensors.
#include "Sites.h"

#include "Proto.h"

#include "mlir/IR/MLIRContext.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"

using namespace mlir;
using namespace mpt;
using namespace ::onnx;

namespace {
constexpr StringLiteral siteKey = "mpt-site", useKey = "mpt-use", nameKey = "mpt-name", viewKey = "mpt-view";

template <typename Message> StringRef noteOf(const Message &message, StringRef key) {
  for (const StringStringEntryProto &entry : message.metadata_props())
    if (entry.key() == key)
      return entry.value();
  return {};
}

template <typename Message> void addNote(Message &message, StringRef key, const std::string &value) {
  StringStringEntryProto &entry = *message.add_metadata_props();
  entry.set_key(key.str());
  entry.set_value(value);
}

void noteGraph(GraphProto &graph, const std::string &path) {
  for (auto [i, tensor] : llvm::enumerate(*graph.mutable_initializer()))
    if (tensor.data_type() != TensorProto::UNDEFINED) // an empty message would grow by its note
      addNote(tensor, siteKey, proto::sitePath(path, 'i', i));
  for (auto [i, sparse] : llvm::enumerate(*graph.mutable_sparse_initializer()))
    addNote(*sparse.mutable_values(), siteKey, proto::sitePath(path, 's', i));
  for (auto [i, node] : llvm::enumerate(*graph.mutable_node())) {
    if (node.input_size() == 0 && node.attribute_size() == 0) // reads and holds no tensor
      continue;
    std::string at = proto::sitePath(path, 'n', i);
    addNote(node, siteKey, at);
    for (auto [k, attribute] : llvm::enumerate(*node.mutable_attribute())) {
      std::string inner = proto::sitePath(at, 'a', k);
      if (attribute.has_t())
        addNote(*attribute.mutable_t(), siteKey, inner + "/t");
      if (attribute.has_sparse_tensor())
        addNote(*attribute.mutable_sparse_tensor()->mutable_values(), siteKey, inner + "/t");
      if (attribute.has_g())
        noteGraph(*attribute.mutable_g(), inner + "/g");
    }
  }
}
} // namespace

std::string proto::sitePath(const std::string &path, char kind, size_t index) {
  return path + "/" + kind + std::to_string(index);
}

void proto::noteSites(ModelProto &model) {
  noteGraph(*model.mutable_graph(), "g");
  for (auto [i, info] : llvm::enumerate(*model.mutable_training_info())) {
    std::string path = sitePath("", 'l', i);
    if (info.has_algorithm())
      noteGraph(*info.mutable_algorithm(), path + "/a");
    if (info.has_initialization())
      noteGraph(*info.mutable_initialization(), path + "/b");
  }
}

void proto::noteUse(TensorProto &tensor, const NodeProto &node, int input) {
  if (StringRef at = noteOf(node, siteKey); !at.empty())
    addNote(tensor, useKey, (at + ":" + Twine(input)).str());
}

void proto::noteName(TensorProto &tensor, const std::string &name) { addNote(tensor, nameKey, name); }

void proto::noteView(TensorProto &tensor, const TensorProto &copy, const TensorView &view) {
  std::string text = noteOf(copy, siteKey).str();
  if (text.empty())
    return;
  text += ":" + std::to_string(view.offset);
  for (auto [extent, stride] : llvm::zip_equal(view.extents, view.strides))
    text += ":" + std::to_string(extent) + "*" + std::to_string(stride);
  addNote(tensor, viewKey, text);
}

/// As noteView() writes it.
static std::pair<std::string, TensorView> readView(StringRef text) {
  std::pair<std::string, TensorView> result;
  SmallVector<StringRef> parts;
  text.split(parts, ':');
  result.first = parts[0].str();
  parts[1].getAsInteger(10, result.second.offset);
  for (StringRef part : ArrayRef(parts).drop_front(2)) {
    part.split('*').first.getAsInteger(10, result.second.extents.emplace_back());
    part.split('*').second.getAsInteger(10, result.second.strides.emplace_back());
  }
  return result;
}

void proto::copySite(const TensorProto &from, TensorProto &to) {
  if (StringRef path = noteOf(from, siteKey); !path.empty())
    addNote(to, siteKey, path.str());
}

TensorSite proto::siteOf(const TensorProto &tensor) {
  TensorSite site;
  site.path = noteOf(tensor, siteKey).str();
  site.name = noteOf(tensor, nameKey).str();
  for (const StringStringEntryProto &entry : tensor.metadata_props())
    if (entry.key() == useKey) {
      auto [node, operand] = StringRef(entry.value()).rsplit(':');
      int number = 0;
      if (!operand.getAsInteger(10, number))
        site.uses.emplace_back(node.str(), number);
    } else if (entry.key() == viewKey) {
      site.copies.push_back(readView(entry.value()));
    }
  return site;
}

llvm::Expected<TensorSites> mpt::sitesOf(StringRef path) {
  auto file = llvm::MemoryBuffer::getFile(path, /*IsText=*/false, /*RequiresNullTerminator=*/false);
  if (!file)
    return llvm::createStringError("cannot open '" + path + "': " + file.getError().message());
  // Diagnostics have a handler only with a context.
  MLIRContext context(MLIRContext::Threading::DISABLED);
  std::string message;
  context.getDiagEngine().registerHandler([&](Diagnostic &diagnostic) { message = diagnostic.str(); });
  ModelProto model;
  TensorSites sites;
  Location loc = proto::namedLoc(&context, path);
  if (failed(proto::parseWithSites((*file)->getBuffer(), model, loc)))
    return llvm::createStringError("'" + path + "': " + message);
  proto::DeclaredParameters declared = proto::declaredParameters(model.graph());
  if (failed(proto::liftTensors(model, &context)))
    return llvm::createStringError("'" + path + "': " + message);
  // Those that stayed one tensor are so in the state as well.
  proto::separateStatistics(model);
  StringRef folder = llvm::sys::path::parent_path(path);
  folder = folder.empty() ? "." : folder;
  proto::JoinedTensors joined;
  proto::SeparatedTensors separated;
  if (failed(proto::settleTensors(model, {}, folder, declared, joined, separated, loc)))
    return llvm::createStringError("'" + path + "': " + message);
  auto take = [&](const GraphProto &graph) {
    for (const TensorProto &tensor : graph.initializer())
      if (TensorSite site = proto::siteOf(tensor); site.isInFile())
        sites[tensor.name()] = std::move(site);
  };
  take(model.graph());
  for (const TrainingInfoProto &info : model.training_info())
    take(info.algorithm());
  return sites;
}
