// SPDX-License-Identifier: Apache-2.0
// Trains the linked model on 1,408 digits and looks at 384 others.
#include "digits.h"
#include "mpt/trainer.hpp"
#include <algorithm>
#include <cstdio>
#include <fstream>

template <class T> std::vector<T> read(const char *path, size_t count) {
  std::vector<T> values(count);
  std::ifstream(path, std::ios::binary)
      .read(reinterpret_cast<char *>(values.data()), std::streamsize(count * sizeof(T)));
  return values;
}

int main() {
  auto images = read<float>("images.bin", 1792 * 64);
  auto labels = read<int64_t>("labels.bin", 1792);
  mpt::Trainer trainer(mpt_module, MPT_MODEL_DIRECTORY);
  for (int epoch = 0; epoch < 12; ++epoch) {
    mpt_metrics result;
    for (size_t row = 0; row < 1408; row += 32)
      result = trainer.step({{"x", &images[row * 64], {32, 64}}, {"labels", &labels[row], {32}}});
    printf("epoch %d: loss %.3f, loss scale %g\n", epoch, result.loss, result.loss_scale);
  }
  int right = 0;
  for (size_t row = 1408; row < 1792; row += 32) {
    auto logits = trainer.evaluate({{"x", &images[row * 64], {32, 64}}})["logits"].values<float>();
    for (size_t i = 0; i < 32; ++i)
      right += std::max_element(&logits[i * 10], &logits[i * 10] + 10) - &logits[i * 10] == labels[row + i];
  }
  printf("accuracy on digits it has not seen: %.3f\n", right / 384.0);
  trainer.saveOnnx("trained.onnx");
}
