// Code for another processor than this one: 512-bit vectors, and BF16 rounded in integers, since the instructions for it
// flush subnormal results. The library names the features that it needs.
// RUN: rm -rf %t && mpt-opt %s --from=fusion --emit=object --mcpu=znver5 --quiet --name=rounding -o %t
// RUN: llvm-objdump-22 -d --no-show-raw-insn %t/rounding.o | FileCheck %s --implicit-check-not=vcvtneps2bf16 --implicit-check-not=vcvtne2ps2bf16 --implicit-check-not=vdpbf16ps
// RUN: FileCheck %s --check-prefix=JSON --input-file=%t/rounding.json
// CHECK: vcvtps2ph {{.*}}%zmm
// JSON: "cpu": "znver5"
// JSON: "cpu_features": "{{.*}}bmi2,{{.*}}avx512f,{{.*}}avx512vbmi,{{.*}}avx512bf16"
module attributes {mpt.name = "rounding"} {
  func.func @evaluate(%x: tensor<1024xf32> {mpt.name = "x"}) -> (tensor<1024xbf16> {mpt.name = "b"}, tensor<1024xf16> {mpt.name = "h"}, tensor<1024xf32> {mpt.name = "r"}) {
    %b = mpt.cast %x : tensor<1024xf32> to tensor<1024xbf16>
    %h = mpt.cast %x : tensor<1024xf32> to tensor<1024xf16>
    %s = mpt.mul %b, %b : tensor<1024xbf16>
    %r = mpt.cast %s : tensor<1024xbf16> to tensor<1024xf32>
    return %b, %h, %r : tensor<1024xbf16>, tensor<1024xf16>, tensor<1024xf32>
  }
}
