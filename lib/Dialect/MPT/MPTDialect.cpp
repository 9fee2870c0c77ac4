// SPDX-License-Identifier: Apache-2.0
// Registration of the core dialect, its attributes and enums.
#include "mpt/Dialect/MPT/MPTDialect.h"

#include "mpt/Dialect/MPT/TrainingOps.h"
#include "mpt/Dialect/MPT/UpdateOps.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mpt;

#include "mpt/Dialect/MPT/MPTDialect.cpp.inc"
#include "mpt/Dialect/MPT/MPTEnums.cpp.inc"

#define GET_ATTRDEF_CLASSES
#include "mpt/Dialect/MPT/MPTAttributes.cpp.inc"

#define GET_OP_CLASSES
#include "mpt/Dialect/MPT/MPTOps.cpp.inc"
#define GET_OP_CLASSES
#include "mpt/Dialect/MPT/TrainingOps.cpp.inc"
#define GET_OP_CLASSES
#include "mpt/Dialect/MPT/UpdateOps.cpp.inc"

void MPTDialect::initialize() {
  addAttributes<
#define GET_ATTRDEF_LIST
#include "mpt/Dialect/MPT/MPTAttributes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "mpt/Dialect/MPT/MPTOps.cpp.inc"
      ,
#define GET_OP_LIST
#include "mpt/Dialect/MPT/TrainingOps.cpp.inc"
      ,
#define GET_OP_LIST
#include "mpt/Dialect/MPT/UpdateOps.cpp.inc"
      >();
}

namespace {

/// The discardable attributes of MPTBase.td, where each may stand.
using OperationAttributes =
    AttributeSet<MPTDialect::NameAttrHelper, MPTDialect::StepAttrHelper, MPTDialect::OptimizerAttrHelper,
                 MPTDialect::ManifestAttrHelper, MPTDialect::MomentumAttrHelper, MPTDialect::StatisticsAttrHelper,
                 MPTDialect::LossAttrHelper, MPTDialect::SeedAttrHelper, MPTDialect::StorableAttrHelper,
                 MPTDialect::PolicyAttrHelper, MPTDialect::PrecisionAttrHelper, MPTDialect::LossyCastsAttrHelper,
                 MPTDialect::RoundingStreamsAttrHelper, MPTDialect::CheckedAttrHelper, MPTDialect::RangeAttrHelper,
                 MPTDialect::RecomputedAttrHelper, MPTDialect::CodedAttrHelper, MPTDialect::TrafficAttrHelper,
                 MPTDialect::ArenaBytesAttrHelper, MPTDialect::KernelAttrHelper, MPTDialect::OpsAttrHelper,
                 MPTDialect::ScheduleAttrHelper, MPTDialect::PassesAttrHelper, MPTDialect::MovedAttrHelper,
                 MPTDialect::GuardedAttrHelper, MPTDialect::InPlaceAttrHelper, MPTDialect::GridAttrHelper,
                 MPTDialect::BlockAttrHelper, MPTDialect::SharedBytesAttrHelper, MPTDialect::Bf16AttrHelper>;
/// Results of a function become arguments when it works on buffers, and keep their attributes.
using ArgumentAttributes = AttributeSet<MPTDialect::NameAttrHelper, MPTDialect::DefaultAttrHelper,
                                        MPTDialect::OutputAttrHelper, MPTDialect::WeightAttrHelper>;
using ResultAttributes = AttributeSet<MPTDialect::NameAttrHelper, MPTDialect::WeightAttrHelper>;

} // namespace

LogicalResult PrecisionAttr::verify(function_ref<InFlightDiagnostic()> error, ArrayAttr operands, ArrayAttr results,
                                    StringAttr, bool) {
  for (Attribute entry : llvm::concat<const Attribute>(operands, results))
    if (auto type = dyn_cast<TypeAttr>(entry); !isa<UnitAttr>(entry) && !(type && isa<FloatType>(type.getValue())))
      return error() << "expected a float type or unit, got " << entry;
  return success();
}

static Type typeIn(ArrayAttr types, unsigned index) {
  auto type = index < types.size() ? dyn_cast<TypeAttr>(types[index]) : TypeAttr();
  return type ? type.getValue() : Type();
}
Type PrecisionAttr::operandType(unsigned index) { return typeIn(getOperands(), index); }
Type PrecisionAttr::resultType(unsigned index) { return typeIn(getResults(), index); }
bool PrecisionAttr::fits(Operation *op) {
  return getOperands().size() == op->getNumOperands() && getResults().size() == op->getNumResults();
}

LogicalResult MPTDialect::verifyOperationAttribute(Operation *op, NamedAttribute attribute) {
  return OperationAttributes::verify(op, attribute, "operations");
}
LogicalResult MPTDialect::verifyRegionArgAttribute(Operation *op, unsigned, unsigned, NamedAttribute attribute) {
  return ArgumentAttributes::verify(op, attribute, "arguments");
}
LogicalResult MPTDialect::verifyRegionResultAttribute(Operation *op, unsigned, unsigned, NamedAttribute attribute) {
  return ResultAttributes::verify(op, attribute, "results");
}

Operation *MPTDialect::materializeConstant(OpBuilder &builder, Attribute value, Type type, Location loc) {
  auto elements = dyn_cast<ElementsAttr>(value);
  if (!elements || elements.getShapedType() != type)
    return nullptr;
  return ConstantOp::create(builder, loc, elements);
}
