// SPDX-License-Identifier: Apache-2.0
// Tensors that a file has a second time, transposed, repeated or in part: exporters fold movements of a weight. They
// train as one again; nodes make the copies of it.
#include "Computed.h"
#include "Elements.h"
#include "OperandUses.h"
#include "Proto.h"
#include "Sites.h"

#include "../ExporterNames.h"

#include "mlir/Dialect/Utils/IndexingUtils.h"
#include "llvm/ADT/StringSet.h"

#include <algorithm>
#include <map>
#include <numeric>

using namespace mlir;
using namespace mpt;
using namespace ::onnx;

namespace {

using proto::Elements;
using proto::LookUp;
using proto::TableRows;
using Extents = SmallVector<int64_t>;

/// Nodes in this form of Slice and Expand.
constexpr int64_t oldestSlice = 10;
/// Axes beyond which nobody tries all orders.
constexpr size_t mostAxes = 4;

/// A copy by the axis of the kept tensor that each of its own runs along, -1 where it repeats, and where it begins.
struct Arrangement {
  SmallVector<int> axes;
  Extents starts;

  /// Each axis along its own, from the first element on.
  static Arrangement inPlace(size_t rank) {
    Arrangement how{SmallVector<int>(rank), Extents(rank, 0)};
    std::iota(how.axes.begin(), how.axes.end(), 0);
    return how;
  }

  TensorView viewOf(ArrayRef<int64_t> kept, ArrayRef<int64_t> copy) const {
    Extents strides = computeSuffixProduct(kept);
    TensorView view;
    view.extents.assign(copy.begin(), copy.end());
    for (int axis : axes)
      view.strides.push_back(axis < 0 ? 0 : strides[axis]);
    for (auto [start, stride] : llvm::zip_equal(starts, strides))
      view.offset += start * stride;
    return view;
  }
};

/// Visits each element of a view with its place in the viewed tensor, until the visitor returns false.
bool visit(const TensorView &view, llvm::function_ref<bool(int64_t, int64_t)> visitor) {
  Extents index(view.extents.size(), 0);
  int64_t at = view.offset, count = ShapedType::getNumElements(view.extents);
  for (int64_t i = 0; i < count; ++i) {
    if (!visitor(i, at))
      return false;
    for (size_t d = index.size(); d-- > 0;) {
      at += view.strides[d];
      if (++index[d] < view.extents[d])
        break;
      at -= view.strides[d] * view.extents[d];
      index[d] = 0;
    }
  }
  return true;
}

bool matches(const Elements &kept, const Elements &copy, const Arrangement &how) {
  return visit(how.viewOf(kept.extents, copy.extents), [&](int64_t i, int64_t at) { return copy.same(i, kept, at); });
}

/// True where all of `tensor` along an axis is its first part.
bool repeats(const Elements &tensor, size_t axis) {
  TensorView view = Arrangement::inPlace(tensor.extents.size()).viewOf(tensor.extents, tensor.extents);
  view.strides[axis] = 0;
  return visit(view, [&](int64_t i, int64_t at) { return tensor.same(i, tensor, at); });
}

/// The copy's axes are the kept tensor's last ones, or repeat.
std::optional<Arrangement> repeated(const Elements &kept, const Elements &copy) {
  Arrangement how{SmallVector<int>(copy.extents.size(), -1), Extents(kept.extents.size(), 0)};
  size_t ahead = copy.extents.size() - std::min(kept.extents.size(), copy.extents.size());
  for (auto [axis, extent] : llvm::enumerate(kept.extents))
    if (extent != 1) {
      if (ahead + axis >= copy.extents.size() || copy.extents[ahead + axis] != extent)
        return std::nullopt;
      how.axes[ahead + axis] = static_cast<int>(axis);
    }
  return how;
}

std::optional<Arrangement> transposed(const Elements &kept, const Elements &copy) {
  if (kept.extents.size() != 2 || copy.extents.size() != 2 || kept.extents[0] != copy.extents[1] ||
      kept.extents[1] != copy.extents[0])
    return std::nullopt;
  return Arrangement{{1, 0}, {0, 0}};
}

/// Rows of the kept tensor, from the first one on.
std::optional<Arrangement> firstRows(const Elements &kept, const Elements &copy) {
  size_t rank = kept.extents.size();
  if (rank < 2 || copy.extents.size() != rank || copy.extents[0] >= kept.extents[0] ||
      !std::equal(copy.extents.begin() + 1, copy.extents.end(), kept.extents.begin() + 1))
    return std::nullopt;
  return Arrangement::inPlace(rank);
}

/// Any order of axes, and any part.
std::optional<Arrangement> found(const Elements &kept, const Elements &copy) {
  SmallVector<int> from, to;
  for (auto [axis, extent] : llvm::enumerate(kept.extents))
    if (extent > 1)
      from.push_back(static_cast<int>(axis));
  for (auto [axis, extent] : llvm::enumerate(copy.extents))
    if (extent > 1 && !repeats(copy, axis))
      to.push_back(static_cast<int>(axis));
  if (from.size() != to.size() || from.size() > mostAxes)
    return std::nullopt;
  Extents strides = computeSuffixProduct(kept.extents);
  do {
    Arrangement how{SmallVector<int>(copy.extents.size(), -1), Extents(kept.extents.size(), 0)};
    for (auto [axis, of] : llvm::zip_equal(to, from))
      how.axes[axis] = of;
    for (int64_t start = 0; start < kept.count; ++start) {
      bool fits = copy.same(0, kept, start);
      for (size_t axis = 0; fits && axis < kept.extents.size(); ++axis) {
        how.starts[axis] = start / strides[axis] % kept.extents[axis];
        auto place = llvm::find(how.axes, static_cast<int>(axis));
        int64_t needs = place == how.axes.end() ? 1 : copy.extents[place - how.axes.begin()];
        fits = how.starts[axis] + needs <= kept.extents[axis];
      }
      if (fits && matches(kept, copy, how))
        return how;
    }
  } while (std::next_permutation(from.begin(), from.end()));
  return std::nullopt;
}

class Copies {
public:
  Copies(ModelProto &model, proto::DeclaredParameters &declared, StringRef folder, Location loc)
      : model(model), graph(*model.mutable_graph()), declared(declared), folder(folder), loc(loc),
        version(proto::opsetVersion(model, "")), torch(StringRef(model.producer_name()).starts_with("pytorch")),
        origins(proto::foldedFrom(graph)), all(proto::foldedFrom(graph, /*all=*/true)),
        parameters(proto::exportedParameters(graph)), nodes(graph.node_size()) {}

  /// With `finds`, only says which they are.
  proto::JoinedTensors join(bool finds = false) {
    this->finds = finds;
    SmallVector<int> order, copies;
    llvm::StringSet<> lookedUp;
    proto::OperandUses operands(model);
    (void)proto::visitNodes(*graph.mutable_node(), [&](const NodeProto &node) {
      for (int i = 0; i < node.input_size(); ++i) {
        auto [reader, isFirst] = readers.try_emplace(node.input(i), node.op_type());
        if (!isFirst && reader->second != node.op_type())
          reader->second.clear();
        if (operands.contracts(node, i))
          contracted.insert(node.input(i));
        if (operands.isWeight(node, i)) {
          weights.insert(node.input(i));
          if (!operands.contracts(node, i))
            lookedUp.insert(node.input(i));
        }
      }
      return success();
    });
    for (int i = 0; i < graph.initializer_size(); ++i) {
      const TensorProto &tensor = graph.initializer(i);
      if (!proto::isFloat(tensor) || tensor.dims_size() == 0 ||
          llvm::any_of(tensor.dims(), [](int64_t d) { return d < 1; }))
        continue;
      order.push_back(i);
      if (mayBeCopy(tensor) && !lookedUp.contains(tensor.name()))
        copies.push_back(i);
    }
    // The kept tensor is a table, else a tensor of the module's, else the larger one.
    auto rank = [&](int i) {
      const TensorProto &tensor = graph.initializer(i);
      return std::tuple(!lookedUp.contains(tensor.name()), mayBeCopy(tensor), -countOf(tensor), i);
    };
    llvm::sort(order, [&](int a, int b) { return rank(a) < rank(b); });
    llvm::sort(copies, [&](int a, int b) { return rank(a) < rank(b); });
    // Tensors that exporters have folded away come first: their part in the file may be a part of other copies.
    int before = graph.initializer_size();
    for (int copy : copies)
      if (!finds)
        shrink(copy);
    for (int folded = before; folded < graph.initializer_size(); ++folded)
      order.insert(order.begin(), folded);
    for (int copy : copies)
      for (int kept : order) {
        if (kept == copy || gone.contains(copy))
          break;
        if (!gone.contains(kept) && joinOne(kept, copy))
          break;
      }
    if (!finds)
      drop();
    return std::move(joined);
  }

private:
  static int64_t countOf(const TensorProto &tensor) {
    return ShapedType::getNumElements(ArrayRef(tensor.dims().data(), static_cast<size_t>(tensor.dims_size())));
  }

  /// True for tensors that an exporter has made, by its own word, or by a name that no module gives.
  bool mayBeCopy(const TensorProto &tensor) const {
    StringRef name = tensor.name();
    if (auto known = declared.find(name); known != declared.end())
      return known->second == proto::Declared::Folded || known->second == proto::Declared::Moved;
    bool path = name.contains('.') && !name.contains('/') && !name.contains(':');
    return !path && (!torch || isGenerated(tensor));
  }

  static bool isGenerated(const TensorProto &tensor) {
    return StringRef(tensor.name()).contains("::") || isGeneratedName(tensor.name());
  }

  const Elements &elementsOf(int index) {
    std::unique_ptr<Elements> &known = elements[index];
    if (!known)
      known = std::make_unique<Elements>(graph.initializer(index), folder, loc);
    return *known;
  }

  bool joinOne(int keptIndex, int copyIndex) {
    const TensorProto &kept = graph.initializer(keptIndex), &copy = graph.initializer(copyIndex);
    auto known = declared.find(kept.name());
    if (kept.data_type() != copy.data_type() || (known != declared.end() && known->second == proto::Declared::Other))
      return false;
    auto from = origins.find(copy.name()), with = origins.find(kept.name());
    bool isOrigin = from != origins.end() && llvm::is_contained(from->second, kept.name());
    bool isSibling =
        from != origins.end() && with != origins.end() && from->second.size() == 1 && from->second == with->second;
    // Where the exporter names the tensors that it folded, its word decides.
    if (from != origins.end() && !isOrigin && !isSibling)
      return false;
    bool isSecond = from == origins.end();
    bool turned =
        kept.dims_size() == 2 && copy.dims_size() == 2 && kept.dims(0) == copy.dims(1) && kept.dims(1) == copy.dims(0);
    // Parts of a tensor that is gone, as two lengths of a table of positions.
    bool areParts =
        isGenerated(copy) && mayBeCopy(kept) && !weights.contains(kept.name()) && !weights.contains(copy.name());
    if (isSecond && !turned && !areParts)
      return false;
    const Elements &a = elementsOf(keptIndex), &b = elementsOf(copyIndex);
    if (a.bytes.empty() || b.bytes.empty() || a.width != b.width)
      return false;
    bool certain = isOrigin || (b.isTelling() && (isSibling || !turned || !repeatsTransposed(a)));
    for (auto *candidate : isSecond ? ArrayRef(seconds) : ArrayRef(folded))
      if (std::optional<Arrangement> how = certain ? candidate(a, b) : std::nullopt; how && matches(a, b, *how)) {
        bool plain = candidate == transposed;
        if (!plain && version < oldestSlice)
          continue;
        read(keptIndex, copy, *how);
        gone.insert(copyIndex);
        return true;
      }
    if (isOrigin && a.extents.size() == 2)
      if (std::optional<LookUp> how = lookUpIn(TableRows(a), b, a.extents[1])) {
        lookUp(keptIndex, copy, *how);
        gone.insert(copyIndex);
        return true;
      }
    // The value of a product or sum of the module's tensors before training is none of them.
    bool isComputed = isOrigin || (isSibling && isZero(b) && !isZero(a));
    if (isComputed && !weights.contains(copy.name()))
      declared[copy.name()] = proto::Declared::Other;
    return false;
  }

  static bool isZero(const Elements &tensor) {
    return llvm::all_of(tensor.bytes, [](char byte) { return byte == 0; });
  }

  /// A symmetric matrix is its transpose by accident.
  static bool repeatsTransposed(const Elements &matrix) { return matches(matrix, matrix, Arrangement{{1, 0}, {0, 0}}); }

  /// A look-up along an axis as long as a row of the table.
  static std::optional<LookUp> lookUpIn(const TableRows &table, const Elements &copy, int64_t width) {
    for (auto [axis, extent] : llvm::enumerate(copy.extents))
      if (extent == width)
        if (std::optional<LookUp> how = table.find(copy, axis))
          return how;
    return std::nullopt;
  }

  /// The tensor that was folded: of several, as a look-up's indices and its table, the one parameter.
  std::string originOf(ArrayRef<std::string> names) const {
    std::string found;
    for (const std::string &name : names)
      if (parameters ? parameters->contains(name) : names.size() == 1 || StringRef(name).ends_with(".weight")) {
        if (!found.empty())
          return "";
        found = name;
      }
    return found;
  }

  /// A tensor that the exporter has repeated or looked up, of one that is in the file no longer, trains as that one.
  void shrink(int index) {
    const TensorProto &copy = graph.initializer(index);
    auto from = origins.find(copy.name());
    if (copy.dims_size() < 2)
      return;
    if (from == origins.end()) {
      // A token before the rows of a batch, of which an optimizer has folded as many as the batch has.
      bool isToken = isExpanded(copy) && !contracted.contains(copy.name());
      if (!isToken || elementsOf(index).bytes.empty() || !shrinkRepeated(copy.name() + "/token", index))
        shrinkBiases(index);
      return;
    }
    std::string name = originOf(from->second);
    const Elements &values = elementsOf(index);
    if (name.empty() || isGeneratedName(name) || values.bytes.empty() ||
        proto::isComputedValue(copy.name(), all.lookup(copy.name())))
      return;
    auto table = tables.find(name);
    bool known =
        table == tables.end() &&
        (declared.contains(name) || llvm::any_of(graph.initializer(), [&](auto &t) { return t.name() == name; }));
    if (known)
      return;
    std::optional<size_t> axis = values.isTelling() ? axisOfRows(values) : std::nullopt;
    // A look-up may be repeated as well, as biases by relative position are over a batch.
    bool isLookUp = axis && rowsOf(values, *axis) < withoutRepeats(values);
    // Which rows of a table of zeros were looked up where, nothing tells.
    if (!values.isTelling() && llvm::any_of(from->second, [](StringRef of) { return of.ends_with("_index"); })) {
      declared[copy.name()] = proto::Declared::Other;
      return;
    }
    if ((table == tables.end() && !isLookUp && shrinkRepeated(name, index)) || !values.isTelling())
      return;
    if (axis && (table == tables.end() || graph.initializer(table->second.second).dims(1) == values.extents[*axis]))
      readRows(name, index, *axis);
  }

  /// Where the exporter does not name the folded tensors: rows of several columns that repeat where they are added, as
  /// biases by relative position do. Penalties by distance, which have a factor for each column, are no parameters.
  void shrinkBiases(int index) {
    const TensorProto &copy = graph.initializer(index);
    if (!isGenerated(copy) || readers.lookup(copy.name()) != "Add" || copy.data_type() != TensorProto::FLOAT)
      return;
    const Elements &values = elementsOf(index);
    if (values.bytes.empty() || !values.isTelling())
      return;
    for (auto &[name, table] : tables) // of another length
      if (auto how = lookUpIn(table.first, values, graph.initializer(table.second).dims(1))) {
        lookUp(table.second, copy, *how);
        gone.insert(index);
        return;
      }
    if (std::optional<size_t> axis = axisOfRows(values)) {
      TableRows rows;
      rows.add(values, *axis);
      if (!rows.areMasked() && !rows.areMultiples(values.extents[*axis]))
        readRows(copy.name() + "/table", index, *axis);
    }
  }

  /// The rows of a look-up join the rows that other look-ups of the same table have left of it.
  void readRows(const std::string &name, int index, size_t axis) {
    const TensorProto &copy = graph.initializer(index);
    const Elements &values = elementsOf(index);
    auto [table, isNew] = tables.try_emplace(name);
    TableRows &rows = table->second.first;
    rows.add(values, axis);
    if (isNew)
      table->second.second = addFolded(name, copy, {rows.count(), values.extents[axis]}, rows.bytes());
    TensorProto &kept = *graph.mutable_initializer(table->second.second);
    kept.set_dims(0, rows.count());
    kept.set_raw_data(rows.bytes());
    lookUp(table->second.second, copy, *rows.find(values, axis));
    gone.insert(index);
  }

  /// Elements of the vectors along an axis that differ.
  static int64_t rowsOf(const Elements &tensor, size_t axis) {
    TableRows rows;
    rows.add(tensor, axis);
    return rows.count() * tensor.extents[axis];
  }

  /// Elements that are left where no axis repeats them.
  static int64_t withoutRepeats(const Elements &tensor) {
    int64_t count = tensor.count;
    for (auto [axis, extent] : llvm::enumerate(tensor.extents))
      count /= repeats(tensor, axis) ? extent : 1;
    return count;
  }

  /// Adds a tensor that the exporter has folded away; its index.
  int addFolded(const std::string &name, const TensorProto &copy, ArrayRef<int64_t> extents, std::string bytes) {
    TensorProto tensor;
    tensor.set_name(name);
    tensor.set_data_type(copy.data_type());
    tensor.mutable_dims()->Add(extents.begin(), extents.end());
    tensor.set_raw_data(std::move(bytes));
    auto known = declared.find(copy.name());
    bool isMoved = known != declared.end() && known->second == proto::Declared::Moved;
    declared[name] = isMoved ? proto::Declared::Moved : proto::Declared::Folded;
    proto::addInitializer(model, std::move(tensor));
    elements[graph.initializer_size() - 1] = nullptr;
    return graph.initializer_size() - 1;
  }

  /// By the name of the value that was folded.
  static bool isExpanded(const TensorProto &tensor) {
    return StringRef(tensor.name()).starts_with("expand") || StringRef(tensor.name()).contains("/Expand_");
  }

  /// False where no part of the tensor repeats along an axis.
  bool shrinkRepeated(const std::string &name, int index) {
    if (version < oldestSlice)
      return false;
    const TensorProto &copy = graph.initializer(index);
    const Elements &values = elementsOf(index);
    bool telling = values.isTelling();
    Arrangement how{{}, Extents(values.extents.size(), 0)};
    Extents extents = values.extents;
    for (size_t axis = 0; axis < extents.size(); ++axis) {
      // Of zeros nothing tells how often they were there, but that batches come first.
      bool again = extents[axis] > 1 && (telling ? repeats(values, axis) : axis == 0);
      how.axes.push_back(again ? -1 : static_cast<int>(axis));
      extents[axis] = again ? 1 : extents[axis];
    }
    if (extents == values.extents || !(telling || isExpanded(copy)) || (!telling && !repeats(values, 0)))
      return false;
    std::string bytes;
    TensorView part = Arrangement::inPlace(extents.size()).viewOf(values.extents, extents);
    visit(part, [&](int64_t, int64_t at) {
      bytes.append(values.bytes.data() + at * values.width, static_cast<size_t>(values.width));
      return true;
    });
    read(addFolded(name, copy, extents, std::move(bytes)), copy, how);
    gone.insert(index);
    return true;
  }

  /// Nodes look the copy up in the kept table, under its name.
  void lookUp(int keptIndex, const TensorProto &copy, const LookUp &how) {
    TensorProto &kept = *graph.mutable_initializer(keptIndex);
    joined[copy.name()] = kept.name();
    if (finds)
      return;
    Extents extents(copy.dims().begin(), copy.dims().end()), places = extents, order(extents.size());
    proto::noteView(kept, copy, {{}, {}, 0, how.elements(extents)});
    places.erase(places.begin() + static_cast<ptrdiff_t>(how.axis));
    std::iota(order.begin(), order.end(), 0);
    std::rotate(order.begin() + static_cast<ptrdiff_t>(how.axis), order.end() - 1, order.end());
    bool turns = how.axis + 1 < extents.size();
    std::string rows = turns ? copy.name() + "/gather" : copy.name();
    addNode("Gather", {kept.name(), addNumbers(copy.name() + "/rows", places, how.rows)}, rows);
    if (turns)
      addNode("Transpose", {rows}, copy.name(), order);
  }

  /// Nodes make the copy of the kept tensor, under its name.
  void read(int keptIndex, const TensorProto &copy, const Arrangement &how) {
    TensorProto &kept = *graph.mutable_initializer(keptIndex);
    joined[copy.name()] = kept.name();
    if (finds)
      return;
    Extents from(kept.dims().begin(), kept.dims().end()), to(copy.dims().begin(), copy.dims().end());
    proto::noteView(kept, copy, how.viewOf(from, to));
    std::string value = kept.name();
    Extents ends = how.starts, part = to, order;
    for (size_t axis = 0; axis < from.size(); ++axis) {
      auto place = llvm::find(how.axes, static_cast<int>(axis));
      ends[axis] += place == how.axes.end() ? 1 : to[place - how.axes.begin()];
    }
    for (auto [axis, of] : llvm::enumerate(how.axes))
      if (of >= 0)
        order.push_back(of);
      else
        part[axis] = 1;
    for (size_t axis = 0; axis < from.size(); ++axis)
      if (!llvm::is_contained(order, static_cast<int64_t>(axis)))
        order.push_back(static_cast<int64_t>(axis)); // of one element
    SmallVector<std::pair<StringRef, SmallVector<Extents>>> steps;
    if (ends != from || llvm::any_of(how.starts, [](int64_t start) { return start != 0; }))
      steps.push_back({"Slice", {how.starts, ends}});
    if (!llvm::is_sorted(order))
      steps.push_back({"Transpose", {}});
    if (part.size() != from.size() || llvm::is_contained(how.axes, -1))
      steps.push_back({"Reshape", {part}});
    if (part != to)
      steps.push_back({"Expand", {to}});
    if (steps.empty())
      steps.push_back({"Identity", {}});
    for (auto [i, step] : llvm::enumerate(steps)) {
      bool last = i + 1 == steps.size();
      std::string result = last ? copy.name() : copy.name() + "/" + step.first.lower();
      SmallVector<std::string> operands{value};
      for (auto [k, numbers] : llvm::enumerate(step.second))
        operands.push_back(addNumbers((result + "/" + step.first.lower() + "." + Twine(k)).str(),
                                      static_cast<int64_t>(numbers.size()), numbers));
      value = addNode(step.first, operands, result, order);
    }
  }

  std::string addNumbers(std::string name, ArrayRef<int64_t> extents, ArrayRef<int64_t> numbers) {
    NodeProto &constant = *graph.add_node();
    constant.set_op_type("Constant");
    constant.add_output(name);
    TensorProto &tensor = *addAttribute(constant, "value", AttributeProto::TENSOR).mutable_t();
    tensor.set_data_type(TensorProto::INT64);
    tensor.mutable_dims()->Add(extents.begin(), extents.end());
    tensor.mutable_int64_data()->Add(numbers.begin(), numbers.end());
    return name;
  }

  std::string addNode(StringRef type, ArrayRef<std::string> operands, const std::string &result,
                      ArrayRef<int64_t> order = {}) {
    NodeProto &node = *graph.add_node();
    node.set_op_type(type.str());
    node.set_name((result + "/" + type.lower()));
    for (const std::string &name : operands)
      node.add_input(name);
    node.add_output(result);
    if (type == "Transpose")
      addAttribute(node, "perm", AttributeProto::INTS).mutable_ints()->Add(order.begin(), order.end());
    return result;
  }

  static AttributeProto &addAttribute(NodeProto &node, const char *name, AttributeProto::AttributeType type) {
    AttributeProto &attribute = *node.add_attribute();
    attribute.set_name(name);
    attribute.set_type(type);
    return attribute;
  }

  void drop() {
    elements.clear();
    auto drops = [&](const auto &value) { return joined.contains(value.name()); };
    auto &tensors = *graph.mutable_initializer();
    tensors.erase(llvm::remove_if(tensors, drops), tensors.end());
    auto &inputs = *graph.mutable_input(); // files of old list initializers here
    inputs.erase(llvm::remove_if(inputs, drops), inputs.end());
    auto &all = *graph.mutable_node(); // nodes are in order
    std::rotate(all.pointer_begin(), all.pointer_begin() + nodes, all.pointer_end());
  }

  using Candidate = std::optional<Arrangement> (*)(const Elements &, const Elements &);
  static constexpr Candidate seconds[] = {transposed, firstRows}, folded[] = {transposed, repeated, firstRows, found};

  ModelProto &model;
  GraphProto &graph;
  proto::DeclaredParameters &declared;
  StringRef folder;
  Location loc;
  int64_t version;
  bool torch, finds = false;
  llvm::StringMap<std::vector<std::string>> origins, all; ///< tensors of the module, and all values on the way
  std::optional<llvm::StringMap<size_t>> parameters;
  int nodes; ///< of the file
  DenseMap<int, std::unique_ptr<Elements>> elements;
  /// Tables that are in the file no longer: the rows that look-ups have left of them, and their initializers.
  std::map<std::string, std::pair<TableRows, int>> tables;
  llvm::StringMap<std::string> readers; ///< by value, the operator of all nodes that read it; empty where they differ
  llvm::StringSet<> contracted;         ///< weights, and states before the first step of a recurrence
  DenseSet<int> gone;
  proto::JoinedTensors joined;
  llvm::StringSet<> weights;
};

} // namespace

proto::JoinedTensors proto::joinCopies(ModelProto &model, StringRef folder, DeclaredParameters &declared,
                                       Location loc) {
  return Copies(model, declared, folder, loc).join();
}

void proto::warnOfCopies(ModelProto &model, StringRef folder, DeclaredParameters declared,
                         const llvm::StringSet<> &trained, Location loc) {
  JoinedTensors found = Copies(model, declared, folder, loc).join(/*finds=*/true);
  std::map<std::string, std::string> apart; // in an order that is the same each time
  for (const auto &[copy, kept] : found)
    if (trained.contains(kept) || trained.contains(copy))
      apart[copy.str()] = kept;
  if (apart.empty())
    return;
  emitWarning(loc) << "'" << apart.begin()->first << "' is a transposed, repeated or partial copy of '"
                   << apart.begin()->second << "'"
                   << (apart.size() > 1 ? ", and " + std::to_string(apart.size() - 1) + " more tensors are such" : "")
                   << ": the training that the file brings moves them apart; compute the copy by nodes of the file, or "
                      "name the forward model with --loss and --optimizer, where copies follow what they are of";
}
