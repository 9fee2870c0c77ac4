// SPDX-License-Identifier: Apache-2.0
// Kernels for epilogues of GEMMs that cuBLASLt lacks (lib/Runtime/cuda/GemmApart.cpp): activations and their gradients
// over whole matrices.
#include "Device.h"
#include "Images.h"

#include "mpt/Dialect/MPT/GraphBuilder.h"
#include "mpt/Dialect/MPT/MPTDialect.h"
#include "mpt/Dialect/RT/RTDialect.h"
#include "mpt/Lowering/GPU/Kernel.h"
#include "mpt/Memory/Bufferize.h"
#include "mpt/Memory/Layout.h"

#include "mlir/IR/OwningOpRef.h"

using namespace mlir;
using namespace mpt;
using namespace mpt::cuda;

namespace {

/// y = GELU(x), or y = dy GELU'(x), on `count` elements; dy and y may be one buffer, and so may x and y of the first.
LogicalResult makeGelu(ModuleOp module, Location loc, const std::string &name, int64_t count, Type element,
                       bool gradient) {
  MLIRContext *context = module.getContext();
  auto type = RankedTensorType::get({count}, element);
  auto buffer = MemRefType::get({count}, element);
  SmallVector<Type> types(gradient ? 2 : 1, type);
  SmallVector<MemRefType> inputs(types.size(), buffer);
  OpBuilder builder(context);
  OperationState state(loc, FusionOp::getOperationName());
  Block &body = state.addRegion()->emplaceBlock();
  for (Type argument : types)
    body.addArgument(argument, loc);
  state.addTypes(type);
  builder.setInsertionPointToEnd(&body);
  Value x = body.getArguments().back(), y;
  if (gradient)
    y = GeluBackwardOp::create(builder, loc, body.getArgument(0), x, GeluForm::tanh);
  else
    y = GeluOp::create(builder, loc, x, GeluForm::tanh);
  Operation *composite = y.getDefiningOp();
  FailureOr<SmallVector<Value>> made = cast<Decomposable>(composite).decompose(builder);
  if (failed(made))
    return failure();
  composite->erase();
  YieldOp::create(builder, loc, made->front());
  OwningOpRef<Operation *> fusion(Operation::create(state));
  builder.setInsertionPointToEnd(module.getBody());
  FailureOr<GpuKernelInfo> info = emitGpuKernel(builder, cast<FusionOp>(*fusion), inputs, buffer, name, device);
  if (failed(info))
    return failure();
  for (GpuLaunch &launch : info->launches)
    setAttr<MPTDialect::KernelAttrHelper>(launch.function);
  if (info->launches.size() != 1 || !memory::mayRunInPlace(info->launches[0].function, 0, types.size()))
    return module.emitError() << "expected a kernel @" << name << " of one launch that may work in place";
  return success();
}

} // namespace

LogicalResult mpt::cuda::addChainKernels(ModuleOp module) {
  using library::Activation;
  SmallVector<rt::GemmOp> gemms;
  module.walk([&](rt::GemmOp gemm) {
    Activation activation = gemm.getForm().getActivation();
    if (activation == Activation::gelu_tanh || activation == Activation::gelu_tanh_gradient)
      gemms.push_back(gemm);
  });
  for (rt::GemmOp gemm : gemms) {
    auto type = cast<MemRefType>(gemm.getD().getType());
    bool gradient = gemm.getForm().getActivation() == Activation::gelu_tanh_gradient;
    int64_t count = memory::elementCount(type.getShape());
    std::string name = gradient ? "mpt_gelu_tanh_gradient_" : "mpt_gelu_tanh_";
    llvm::raw_string_ostream(name) << type.getElementType() << "_" << count;
    if (!module.lookupSymbol(name) &&
        failed(makeGelu(module, gemm.getLoc(), name, count, type.getElementType(), gradient)))
      return failure();
  }
  return success();
}
