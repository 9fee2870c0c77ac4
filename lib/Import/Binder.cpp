// SPDX-License-Identifier: Apache-2.0
// Operand, attribute and result access of import rules, with located failures.
#include "Binder.h"
#include "Converter.h"

#include "mpt/Dialect/ONNX/Defaults.h"
#include "mpt/Evaluation/Constants.h"
#include "mpt/Import/Import.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mpt;

InFlightDiagnostic Binder::fail() { return emitError(loc) << opType() << ": "; }
InFlightDiagnostic Binder::warn() { return emitWarning(loc) << opType() << ": "; }

bool Binder::has(unsigned i) {
  return i < node.getInputs().size() && !isa_and_nonnull<onnx::AbsentOp>(node.getInputs()[i].getDefiningOp());
}

Value Binder::named(unsigned i) {
  operandsRead.insert(i);
  return node.getInputs()[i];
}

Value Binder::in(unsigned i) { return converter.lookup(named(i)); }

LogicalResult Binder::checkTensor(unsigned i) {
  if (has(i) && !converter.lookup(node.getInputs()[i]))
    return fail() << "expected a tensor as operand " << i << ", got a sequence or an optional value";
  return success();
}

LogicalResult Binder::need(unsigned count) {
  for (unsigned i = 0; i < count; ++i) {
    if (!has(i))
      return fail() << "expected at least " << count << " operands, got none at position " << i;
    if (failed(checkTensor(i)))
      return failure();
  }
  return success();
}

LogicalResult Binder::needFloat(unsigned count, int64_t leastRank) {
  if (failed(need(count)))
    return failure();
  for (unsigned i = 0; i < count; ++i)
    if (!isFloat(i))
      return fail() << "expected float operands, got " << in(i).getType();
  if (rank(0) < leastRank)
    return fail() << "expected an input of rank " << leastRank << " or more, got " << in(0).getType();
  return success();
}

ElementsAttr Binder::given(unsigned i) { return has(i) ? constantOf(in(i)) : ElementsAttr(); }

ElementsAttr Binder::required(unsigned i) {
  if (ElementsAttr known = given(i); known || !has(i))
    return known;
  return in(i) ? converter.initialValue(in(i), loc) : ElementsAttr();
}

SmallVector<int64_t> Binder::intsOf(ElementsAttr values) {
  SmallVector<int64_t> result;
  FailureOr<Tensor> tensor = Tensor::fromAttribute(values, UnknownLoc::get(values.getContext()));
  for (int64_t i = 0, e = succeeded(tensor) ? tensor->size() : 0; i < e; ++i)
    result.push_back(tensor->isFloat() ? static_cast<int64_t>(tensor->reals()[i]) : tensor->ints()[i]);
  return result;
}

FailureOr<SmallVector<int64_t>> Binder::ints(unsigned i, StringRef what) {
  ElementsAttr values = required(i);
  if (!values || !isa<IntegerType>(values.getElementType()))
    return fail() << "expected constant integers as " << what << " (operand " << i
                  << "), got values that are computed at run time; shapes must be static: bind symbolic dimensions";
  if (values.getNumElements() > (1 << 24))
    return fail() << "expected at most 2^24 integers as " << what << " (operand " << i << "), got "
                  << values.getNumElements();
  return intsOf(values);
}

FailureOr<double> Binder::number(unsigned i, StringRef what) {
  ElementsAttr values = required(i);
  if (!values || values.getNumElements() != 1)
    return fail() << "expected one constant number as " << what << " (operand " << i << "), got "
                  << (!values ? "a value that is computed at run time" : "several");
  FailureOr<Tensor> tensor = Tensor::fromAttribute(values, loc);
  return failed(tensor) ? FailureOr<double>() : tensor->number(0);
}

Attribute Binder::attr(StringRef name) {
  attributesRead.insert(name);
  return node.getAttrs().get(name);
}

void Binder::ignore(std::initializer_list<StringRef> names) { attributesRead.insert_range(names); }

LogicalResult Binder::checkAllWasRead() {
  for (unsigned i = 0, e = node.getInputs().size(); i < e; ++i)
    if (has(i) && !operandsRead.contains(i))
      return fail() << "expected no operand " << i
                    << " in this form of the operator, got one; its meaning here is not "
                       "supported";
  for (NamedAttribute given : node.getAttrs()) {
    StringRef name = given.getName();
    if (attributesRead.contains(name))
      continue;
    Attribute usual = onnx::defaultAttribute(node.getContext(), node.getDomain(), opType(), version(), name);
    if (usual == given.getValue())
      continue;
    InFlightDiagnostic error = fail() << "expected attribute '" << name << "' to be ";
    if (usual)
      error << usual;
    else
      error << "absent";
    return error << ", got " << given.getValue() << ", which is not supported";
  }
  for (auto [i, result] : llvm::enumerate(node.getResults()))
    if (!result.use_empty() && !converter.lookup(result) && !converter.sequences.contains(result))
      return fail() << "expected result " << i << " to be unused, as it is not supported";
  return success();
}

int64_t Binder::intAttr(StringRef name, int64_t otherwise) {
  auto value = dyn_cast_or_null<IntegerAttr>(attr(name));
  return value ? value.getInt() : otherwise;
}

double Binder::floatAttr(StringRef name, double otherwise) {
  auto value = dyn_cast_or_null<FloatAttr>(attr(name));
  return value ? value.getValueAsDouble() : static_cast<double>(static_cast<float>(otherwise));
}

StringRef Binder::stringAttr(StringRef name, StringRef otherwise) {
  auto value = dyn_cast_or_null<StringAttr>(attr(name));
  return value ? value.getValue() : otherwise;
}

SmallVector<int64_t> Binder::intsAttr(StringRef name, ArrayRef<int64_t> otherwise) {
  auto value = dyn_cast_or_null<DenseI64ArrayAttr>(attr(name));
  return SmallVector<int64_t>(value ? value.asArrayRef() : otherwise);
}

FailureOr<int64_t> Binder::axis(int64_t value, int64_t rank) {
  if (value < -rank || value >= rank)
    return fail() << "expected an axis from " << -rank << " to " << rank - 1 << ", got " << value;
  return value < 0 ? value + rank : value;
}

FailureOr<SmallVector<int64_t>> Binder::axes(ArrayRef<int64_t> values, int64_t rank) {
  SmallVector<int64_t> result;
  for (int64_t value : values) {
    FailureOr<int64_t> one = axis(value, rank);
    if (failed(one))
      return failure();
    if (llvm::is_contained(result, *one))
      return fail() << "expected distinct axes, got axis " << *one << " twice";
    result.push_back(*one);
  }
  llvm::sort(result);
  return result;
}

FailureOr<Type> Binder::typeAttr(StringRef name, Type otherwise) {
  auto value = dyn_cast_or_null<IntegerAttr>(attr(name));
  if (!value)
    return otherwise;
  auto integer = [&](unsigned width, bool isUnsigned = false) -> Type {
    return IntegerType::get(builder.getContext(), width, isUnsigned ? IntegerType::Unsigned : IntegerType::Signless);
  };
  // Numbers of TensorProto.DataType.
  switch (value.getInt()) {
  case 1:
    return Type(builder.getF32Type());
  case 2:
    return integer(8, true);
  case 3:
    return integer(8);
  case 4:
    return integer(16, true);
  case 5:
    return integer(16);
  case 6:
    return integer(32);
  case 7:
    return integer(64);
  case 9:
    return integer(1);
  case 10:
    return Type(builder.getF16Type());
  case 11:
    return Type(builder.getF64Type());
  case 12:
    return integer(32, true);
  case 13:
    return integer(64, true);
  case 16:
    return Type(builder.getBF16Type());
  case 17:
    return Type(Float8E4M3FNType::get(builder.getContext()));
  case 19:
    return Type(Float8E5M2Type::get(builder.getContext()));
  default:
    return fail() << "expected a float or integer type as '" << name << "', got ONNX data type " << value.getInt();
  }
}

LogicalResult Binder::set(unsigned i, Value value) {
  if (i >= node.getNumResults())
    return success();
  if (failed(checkShape(tensorType(value).getShape())))
    return failure();
  // The type that ONNX inferred and the built one must agree, or one of the two misread the op.
  if (auto want = dyn_cast<RankedTensorType>(node.getResult(i).getType())) {
    RankedTensorType got = tensorType(value);
    bool same = want.getRank() == got.getRank() && want.getElementType() == got.getElementType();
    for (int64_t d = 0; same && d < want.getRank(); ++d)
      same = want.isDynamicDim(d) || want.getDimSize(d) == got.getDimSize(d);
    if (!same)
      return fail() << "expected result " << i << " of type " << want << ", got " << got;
  }
  converter.map(node.getResult(i), value);
  return success();
}

LogicalResult Binder::checkShape(ArrayRef<int64_t> shape) {
  int64_t count = 1;
  for (int64_t extent : shape) // no extent hides behind a zero: parts of shapes are multiplied too
    if (extent < 0 || llvm::MulOverflow(count, std::max<int64_t>(extent, 1), count) || count > mostElements)
      return fail() << "expected a shape of non-negative extents and fewer than 2^40 elements, got [" << shape << "]";
  return success();
}

LogicalResult Binder::checkWindow(StringRef name, ArrayRef<int64_t> values, size_t rank) {
  if (values.size() != rank || llvm::any_of(values, [](int64_t v) { return v < 1 || v > mostWindow; }))
    return fail() << "expected " << rank << " positive " << name << ", got [" << values << "]";
  return success();
}

LogicalResult Binder::checkPads(ArrayRef<int64_t> pads, size_t rank, bool cropping) {
  int64_t least = cropping ? -mostWindow : 0;
  if (pads.size() != 2 * rank || llvm::any_of(pads, [&](int64_t v) { return v < least || v > mostWindow; }))
    return fail() << "expected " << 2 * rank << " pads, got [" << pads << "]";
  return success();
}

LogicalResult Binder::checkElementIndices(ArrayRef<int64_t> x, ArrayRef<int64_t> indices, int64_t axis) {
  bool fits = indices.size() == x.size();
  for (size_t i = 0; fits && i < x.size(); ++i)
    fits = static_cast<int64_t>(i) == axis || indices[i] <= x[i];
  if (!fits)
    return fail() << "expected indices of rank " << x.size() << " and, but on axis " << axis
                  << ", extents up to those of [" << x << "], got [" << indices << "]";
  return success();
}

FailureOr<int64_t> Binder::spread(int64_t extent, int64_t stride) {
  int64_t reach = 0;
  if (llvm::MulOverflow(extent - 1, stride, reach) || reach > mostElements)
    return fail() << "expected fewer than 2^40 elements, got an extent of " << extent << " at strides of " << stride;
  return reach;
}

FailureOr<SmallVector<int64_t>> Binder::broadcastShape(ArrayRef<int64_t> a, ArrayRef<int64_t> b) {
  SmallVector<int64_t> result(std::max(a.size(), b.size()), 1);
  for (size_t i = 0; i < result.size(); ++i) {
    int64_t x = i < a.size() ? a[a.size() - 1 - i] : 1, y = i < b.size() ? b[b.size() - 1 - i] : 1;
    if (x != y && x != 1 && y != 1)
      return fail() << "expected shapes that broadcast, got [" << a << "] and [" << b << "]";
    result[result.size() - 1 - i] = x == 1 ? y : x;
  }
  if (failed(checkShape(result)))
    return failure();
  return result;
}

FailureOr<std::pair<Value, Value>> Binder::broadcastPair(Value a, Value b) {
  auto shape = broadcastShape(tensorType(a).getShape(), tensorType(b).getShape());
  if (failed(shape))
    return failure();
  return std::make_pair(broadcastTo(a, *shape), broadcastTo(b, *shape));
}

FailureOr<Value> Binder::optionalLike(unsigned i, Value like) {
  if (!has(i))
    return Value();
  ArrayRef<int64_t> want = tensorType(like).getShape();
  auto common = broadcastShape(shape(i), want);
  if (failed(common))
    return failure();
  if (ArrayRef<int64_t>(*common) != want || element(i) != tensorType(like).getElementType())
    return fail() << "expected operand " << i << " to broadcast to " << like.getType() << ", got " << in(i).getType();
  return broadcastTo(in(i), want);
}

FailureOr<Value> Binder::plusOptional(Value x, unsigned i) {
  FailureOr<Value> y = optionalLike(i, x);
  if (failed(y))
    return failure();
  return *y ? add(x, *y) : x;
}

std::pair<Value, int64_t> Binder::generator() { return converter.generator(loc); }
