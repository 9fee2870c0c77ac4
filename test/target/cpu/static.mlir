// RUN: rm -rf %t && mpt-opt %s --library-convert-calls --library-choose-layouts --memory-assign-destinations --memory-bufferize --lowering-emit-kernels --memory-plan --lowering-emit-library="out=%t name=toy kind=static" -o %t.out
// RUN: clang -std=c11 -Wall -Werror -I%mpt_source/include -I%t %S/Inputs/linked.c %t/libtoy.a -L%mpt_build/lib -lmpt_rt -Wl,-rpath,%mpt_build/lib -lm -o %t/main
// RUN: %t/main %t | FileCheck %s
// RUN: mpt-opt %s --library-convert-calls --library-choose-layouts --memory-assign-destinations --memory-bufferize --lowering-emit-kernels --memory-plan --lowering-emit-library="out=%t/o name=toy kind=object" -o %t.out
// RUN: clang -std=c11 -I%mpt_source/include -I%t/o %S/Inputs/linked.c %t/o/toy.o -L%mpt_build/lib -lmpt_rt -Wl,-rpath,%mpt_build/lib -lm -o %t/main2
// RUN: %t/main2 %t/o | FileCheck %s

// A model that is linked into the program, as an archive or an object.
// CHECK: model toy
// CHECK: y 6 6 6 6 24 24 24 24
// CHECK: w 72 72 72 72 102 102 102 102 132 132 132 132
train.state parameter @w : tensor<3x4xf32> = dense<2.0> : tensor<3x4xf32>
func.func @step(%x: tensor<2x3xf32> {mpt.name = "x"}) -> (tensor<2x4xf32> {mpt.name = "y"}) {
  %w = train.read @w : tensor<3x4xf32>
  %y = mpt.matmul %x, %w : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
  %g = mpt.matmul %x, %y {transpose_a = true} : (tensor<2x3xf32>, tensor<2x4xf32>) -> tensor<3x4xf32>
  train.write @w, %g : tensor<3x4xf32>
  return %y : tensor<2x4xf32>
}
