// RUN: rm -rf %t && mpt-opt %s --library-convert-calls --library-choose-layouts --memory-assign-destinations --memory-bufferize --lowering-emit-kernels --memory-plan --lowering-emit-library="out=%t/so name=toy keep-ir=true" -o %t.out
// RUN: ls %t/so | FileCheck %s --check-prefix=FILES
// RUN: FileCheck %s --check-prefix=IR --input-file=%t/so/toy.ll
// RUN: FileCheck %s --check-prefix=JSON --input-file=%t/so/toy.json
// RUN: FileCheck %s --check-prefix=HEADER --input-file=%t/so/toy.h
// RUN: mpt-opt %s --library-convert-calls --library-choose-layouts --memory-assign-destinations --memory-bufferize --lowering-emit-kernels --memory-plan --lowering-emit-library="out=%t/a name=toy kind=static" -o %t.out
// RUN: llvm-nm-22 %t/a/libtoy.a | FileCheck %s --check-prefix=SYMBOLS
// RUN: not mpt-opt %s --library-convert-calls --library-choose-layouts --memory-assign-destinations --memory-bufferize --lowering-emit-kernels --memory-plan --lowering-emit-library="out=%t/b name=toy flags=--mcpu=abacus" -o %t.out 2>&1 | FileCheck %s --check-prefix=CPU
// RUN: not mpt-opt %s --library-convert-calls --library-choose-layouts --memory-assign-destinations --memory-bufferize --lowering-emit-kernels --memory-plan --lowering-emit-library="out=%t/c name=toy linker=no-such-linker" -o %t.out 2>&1 | FileCheck %s --check-prefix=LINKER
// RUN: ls -A %t/c | count 0

// FILES-DAG: libtoy.so
// FILES-DAG: toy.h
// FILES-DAG: toy.json
// FILES-DAG: toy.safetensors
// IR: @mpt_module = {{.*}}constant
// IR: define internal i32 @mpt_entry_step(ptr %{{[0-9a-z]+}}) #[[ENTRY:[0-9]+]] {
// IR: call i32 @mpt_rt_gemm(
// Vectors of pointers are not looked for in the straight line of calls.
// IR: attributes #[[ENTRY]] = { {{.*}}noimplicitfloat
// JSON: "fingerprint": "{{[0-9a-f]+}}"
// JSON: "learning_rate": 0.5
// HEADER: y: f32[2,4]
// HEADER: extern const mpt_module_desc mpt_module;
// SYMBOLS-DAG: U mpt_rt_gemm
// SYMBOLS-DAG: mpt_module
// CPU: expected a processor that LLVM knows for {{.*}}, got 'abacus'
// LINKER: cannot run the linker 'no-such-linker'

module attributes {mpt.manifest = {learning_rate = 0.5}} {
  train.state parameter @w : tensor<3x4xf32> = dense<2.0> : tensor<3x4xf32>
  func.func @step(%x: tensor<2x3xf32> {mpt.name = "x"}) -> (tensor<2x4xf32> {mpt.name = "y"}) {
    %w = train.read @w : tensor<3x4xf32>
    %y = mpt.matmul %x, %w : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
    return %y : tensor<2x4xf32>
  }
}
