// SPDX-License-Identifier: Apache-2.0
// The table that an emitted library exports, field for field as mpt-c/abi.h declares it.
#include "Program.h"

#include "mpt-c/abi.h"
#include "mpt-c/abi_images.h"

#include "llvm/IR/IRBuilder.h"

using namespace mpt;
using namespace mpt::target;
using llvm::Constant;

namespace {

// Fields below have the order and width of the structs; all are pointers or 64-bit integers.
static_assert(sizeof(mpt_tensor_desc) == 8 * 8 && sizeof(mpt_function_desc) == 15 * 8 &&
                  sizeof(mpt_call_desc) == 4 * 8 && sizeof(mpt_buffer_desc) == 3 * 8 &&
                  sizeof(mpt_kernel_desc) == 9 * 8 && sizeof(mpt_image_desc) == 4 * 8 &&
                  sizeof(mpt_host_image) == 3 * 8 && sizeof(mpt_index_desc) == 8 * 8 &&
                  sizeof(mpt_module_desc) == 16 * 8,
              "the tables here have to follow mpt-c/abi.h");

class TableBuilder {
public:
  explicit TableBuilder(llvm::Module &module) : module(module), context(module.getContext()), ir(context) {}

  Constant *number(int64_t value) { return ir.getInt64(value); }
  Constant *text(llvm::StringRef value) {
    auto [it, fresh] = texts.try_emplace(value, nullptr);
    if (fresh)
      it->second = global(llvm::ConstantDataArray::getString(context, value), llvm::Align(1));
    return it->second;
  }
  Constant *global(Constant *value, llvm::Align alignment = llvm::Align(8)) {
    auto *variable = new llvm::GlobalVariable(module, value->getType(), true, llvm::GlobalValue::PrivateLinkage, value);
    variable->setAlignment(alignment);
    return variable;
  }
  Constant *record(llvm::ArrayRef<Constant *> fields) { return llvm::ConstantStruct::getAnon(context, fields); }
  /// A pointer to an array of records; null when there are none.
  Constant *array(llvm::ArrayRef<Constant *> records) {
    if (records.empty())
      return llvm::ConstantPointerNull::get(ir.getPtrTy());
    return global(llvm::ConstantArray::get(llvm::ArrayType::get(records.front()->getType(), records.size()), records));
  }
  /// A pointer to an array of integers; null when there are none.
  Constant *numbers(llvm::ArrayRef<int64_t> values) {
    if (values.empty())
      return llvm::ConstantPointerNull::get(ir.getPtrTy());
    return global(llvm::ConstantDataArray::get(
        context, llvm::ArrayRef<uint64_t>(reinterpret_cast<const uint64_t *>(values.data()), values.size())));
  }
  Constant *tensor(const TensorInfo &info) {
    return record({text(info.name), text(info.of), numbers(info.shape), number(info.shape.size()), number(info.dtype),
                   number(info.role), number(info.bytes), number(info.offset)});
  }
  template <typename Range> Constant *tensors(const Range &range) {
    llvm::SmallVector<Constant *> records;
    for (const TensorInfo &info : range)
      records.push_back(tensor(info));
    return array(records);
  }

  Constant *calls(llvm::ArrayRef<CallInfo> calls) {
    llvm::SmallVector<Constant *> records;
    for (const CallInfo &call : calls)
      records.push_back(record({text(call.what), text(call.node), number(call.bytes), number(call.flops)}));
    return array(records);
  }

  Constant *buffers(llvm::ArrayRef<BufferInfo> buffers) {
    llvm::SmallVector<Constant *> records;
    for (const BufferInfo &buffer : buffers)
      records.push_back(record({text(buffer.what), text(buffer.node), number(buffer.bytes)}));
    return array(records);
  }

  Constant *indices(llvm::ArrayRef<IndexInfo> indices) {
    llvm::SmallVector<Constant *> records;
    for (const IndexInfo &index : indices)
      records.push_back(record({number(index.input), text(index.node), number(index.offset), number(index.shape.size()),
                                numbers(index.shape), numbers(index.strides), number(index.ranges.size() / 2),
                                numbers(index.ranges)}));
    return array(records);
  }

  Constant *kernels(llvm::ArrayRef<KernelEntry> kernels) {
    llvm::SmallVector<Constant *> records;
    for (const KernelEntry &kernel : kernels)
      records.push_back(record({text(kernel.name), number(kernel.grid[0]), number(kernel.grid[1]),
                                number(kernel.grid[2]), number(kernel.block[0]), number(kernel.block[1]),
                                number(kernel.block[2]), number(0), number(kernel.numArgs)}));
    return array(records);
  }

  Constant *images(llvm::ArrayRef<Image> images, Constant *kernels) {
    llvm::SmallVector<Constant *> records;
    for (const Image &image : images) {
      const bool isText = image.kind == MPT_IMAGE_PTX || image.kind == MPT_IMAGE_EXACT_PTX;
      Constant *data;
      if (image.kind == MPT_IMAGE_HOST)
        data = hostImage(image.functions, kernels);
      else
        data = global(llvm::ConstantDataArray::getString(context, image.bytes, isText), llvm::Align(64));
      int64_t bytes = image.bytes.size() + isText;
      records.push_back(record({number(image.kind), number(image.arch), number(bytes), data}));
    }
    return array(records);
  }

private:
  Constant *hostImage(llvm::ArrayRef<std::string> functions, Constant *descs) {
    llvm::SmallVector<Constant *> pointers;
    auto *type = llvm::FunctionType::get(ir.getVoidTy(), {ir.getPtrTy(), ir.getInt64Ty(), ir.getInt64Ty()}, false);
    for (const std::string &name : functions) {
      if (name.empty()) {
        pointers.push_back(llvm::ConstantPointerNull::get(ir.getPtrTy()));
        continue;
      }
      auto *function = llvm::cast<llvm::Function>(module.getOrInsertFunction(name, type).getCallee());
      function->setVisibility(llvm::GlobalValue::HiddenVisibility);
      pointers.push_back(function);
    }
    return global(record({number(pointers.size()), descs, array(pointers)}));
  }

  llvm::Module &module;
  llvm::LLVMContext &context;
  llvm::IRBuilder<> ir;
  llvm::StringMap<Constant *> texts;
};

} // namespace

void mpt::target::buildTables(const Program &program, llvm::StringRef manifest, llvm::Module &out) {
  TableBuilder build(out);
  llvm::SmallVector<TensorInfo> state;
  for (const auto &[name, info] : program.state)
    state.push_back(info);
  llvm::SmallVector<Constant *> functions;
  for (const FunctionInfo &info : program.functions)
    functions.push_back(
        build.record({build.text(info.name), out.getFunction("mpt_entry_" + info.name), build.number(info.arenaBytes),
                      build.number(info.callSites), build.number(info.inputs.size()), build.tensors(info.inputs),
                      build.number(info.outputs.size()), build.tensors(info.outputs), build.number(info.calls.size()),
                      build.calls(info.calls), build.number(info.buffers.size()), build.buffers(info.buffers),
                      build.number(info.indices.size()), build.indices(info.indices), build.number(info.phase)}));
  Constant *kernels = build.kernels(program.entries);
  Constant *table = build.record(
      {build.number(MPT_ABI_VERSION), build.text(program.name), build.text(program.fingerprint), build.text(manifest),
       build.text(program.cpu), build.text(program.cpuFeatures), build.number(program.stateBytes),
       build.number(state.size()), build.tensors(state), build.number(functions.size()), build.array(functions),
       build.text(program.target), build.number(program.entries.size()), kernels, build.number(program.images.size()),
       build.images(program.images, kernels)});
  auto *variable =
      new llvm::GlobalVariable(out, table->getType(), true, llvm::GlobalValue::ExternalLinkage, table, "mpt_module");
  variable->setAlignment(llvm::Align(8));
}
