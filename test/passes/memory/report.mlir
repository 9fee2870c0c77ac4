// RUN: mpt-opt %s --library-convert-calls --library-choose-layouts --memory-assign-destinations --memory-bufferize --lowering-emit-kernels --memory-plan --memory-report -o %t | FileCheck %s
// RUN: mpt-opt %s --library-convert-calls --library-choose-layouts --memory-assign-destinations --memory-bufferize --lowering-emit-kernels --memory-plan --memory-report="json=true file=%t.json" -o %t
// RUN: FileCheck %s --check-prefix=JSON --input-file=%t.json

// CHECK: state (bytes)
// CHECK-NEXT: parameter 8,192
// CHECK-NEXT: slot 16,384
// CHECK-NEXT: @step
// CHECK-NEXT: arena 32,768
// CHECK: gemms 4
// CHECK: lower_bound 32,768
// The hidden value lives on into the backward pass, which starts at the first GEMM that states it.
// CHECK: saved 16,384
// CHECK: most bytes are live at one:
// CHECK: other 16,384
// CHECK: saved 16,384
// JSON: "saved_values": [
// JSON: "node": "one"
// JSON: "until": "one"
train.state parameter @w : tensor<64x64xbf16> = dense<2.0> : tensor<64x64xbf16>
train.state slot @m : tensor<64x64xf32> of "w"
func.func @step(%x: tensor<64x64xf32>) -> (tensor<64x64xf32> {mpt.name = "loss", train.role = #train<role loss>}, tensor<64x64xf32>) {
  %h = mpt.matmul %x, %x : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32> loc("one")
  %y = mpt.matmul %h, %x : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32> loc("two")
  %g = mpt.matmul %y, %h {train.part = #train<part backward>} : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32> loc("one")
  %r = mpt.matmul %g, %x {train.part = #train<part backward>} : (tensor<64x64xf32>, tensor<64x64xf32>) -> tensor<64x64xf32> loc("two")
  return %y, %r : tensor<64x64xf32>, tensor<64x64xf32>
}
