// Code for AArch64: NEON and FP16 conversions always, the processor's own rounding to BF16 where it is named. A library that
// leaves nothing to link needs no linker; others say which one, and which runtime, is missing.
// RUN: rm -rf %t && mpt-opt %s --from=fusion --emit=object --mtriple=aarch64-linux-gnu --quiet --name=plain -o %t
// RUN: llvm-objdump-22 -d --no-show-raw-insn %t/plain.o | FileCheck %s --check-prefixes=NEON --implicit-check-not=bfcvt
// RUN: FileCheck %s --check-prefix=PLAIN --input-file=%t/plain.json
// RUN: mpt-opt %s --from=fusion --emit=static --mtriple=aarch64-linux-gnu --mcpu=neoverse-n1 --mattr=+bf16 --quiet --name=rounding -o %t
// RUN: llvm-objdump-22 -d --no-show-raw-insn %t/librounding.a | FileCheck %s --check-prefixes=NEON,BF16
// RUN: FileCheck %s --check-prefix=JSON --input-file=%t/rounding.json
//
// RUN: not mpt-opt %s --from=fusion --emit=static --mtriple=aarch64-linux-gnu --mcpu=native -o %t/a 2>&1 | FileCheck %s --check-prefix=NATIVE
// RUN: not mpt-opt %s --from=fusion --emit=static --mtriple=aarch64-linux-gnu --mattr=+avx2 -o %t/a 2>&1 | FileCheck %s --check-prefix=FEATURE
// RUN: not mpt-opt %s --from=fusion --mtriple=sparc-sun-solaris -o %t/a 2>&1 | FileCheck %s --check-prefix=TRIPLE
// RUN: env PATH=%t not mpt-opt %s --from=fusion --emit=object --mtriple=aarch64-linux-gnu -o %t/a 2>&1 | FileCheck %s --check-prefix=LINKER
// RUN: mkdir %t/bin && ln %mpt_build/bin/mpt-opt %t/bin/
// RUN: not %t/bin/mpt-opt %s --from=fusion --mtriple=aarch64-linux-gnu -o %t/a 2>&1 | FileCheck %s --check-prefix=RUNTIME
// NEON: file format elf64-littleaarch64
// BF16: bfcvtn
// NEON: fcvtn
// PLAIN: "cpu": "generic"
// PLAIN: "cpu_features": ""
// JSON: "cpu": "neoverse-n1"
// JSON: "cpu_features": "{{.*}}fullfp16,{{.*}}bf16"
// NATIVE: error: {{.*}}expected a processor that LLVM knows for aarch64-unknown-linux-gnu, got 'native'
// FEATURE: error: {{.*}}expected features that LLVM knows for aarch64-unknown-linux-gnu, each with + or -, as in --mattr=+bf16,-sve; got '+avx2'
// TRIPLE: mpt-opt: expected the triple of a Linux machine, x86_64-linux-gnu or aarch64-linux-gnu for --mtriple, got 'sparc-sun-solaris'
// LINKER: error: {{.*}}no linker found: install aarch64-linux-gnu-gcc or ld.lld, or emit a static library
// RUNTIME: error: {{.*}}expected lib/aarch64-linux-gnu/libmpt_rt.so beside the folder of this program, found none; make it with scripts/build-runtime.sh aarch64, or emit a static library
module attributes {mpt.name = "rounding"} {
  func.func @evaluate(%x: tensor<1024xf32> {mpt.name = "x"}) -> (tensor<1024xbf16> {mpt.name = "b"}, tensor<1024xf16> {mpt.name = "h"}, tensor<1024xf32> {mpt.name = "r"}) {
    %b = mpt.cast %x : tensor<1024xf32> to tensor<1024xbf16>
    %h = mpt.cast %x : tensor<1024xf32> to tensor<1024xf16>
    %s = mpt.mul %b, %b : tensor<1024xbf16>
    %r = mpt.cast %s : tensor<1024xbf16> to tensor<1024xf32>
    return %b, %h, %r : tensor<1024xbf16>, tensor<1024xf16>, tensor<1024xf32>
  }
}
