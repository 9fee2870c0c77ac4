// SPDX-License-Identifier: Apache-2.0
// Damaged models for the fuzz target and the mutation test: bits, fields of the message, or nodes and tensors of the
// graph.
#ifndef MPT_TEST_FUZZ_MUTATE_H
#define MPT_TEST_FUZZ_MUTATE_H

#include <cstdint>
#include <string>

namespace mpt::fuzz {

/// Changes a binary model in one to four places. Either fields: numbers become extreme, names become other values',
/// operators others, fields are added, doubled, dropped or swapped. Or the graph, which stays one in which most names
/// have a meaning: nodes go, double or read other values, attributes, shapes, element types and operator sets change,
/// outputs and bindings get other roles, the files beside it (see split()) are changed in turn. Now and then, and for
/// bytes that do not parse, bits flip and the end goes instead. The same seed gives the same model.
std::string mutateModel(const std::string &bytes, uint64_t seed);

/// A model and the files that lie beside one of ONNX Runtime's; empty where there is none.
struct Parts {
  std::string model, checkpoint, optimizer, evaluation;
};
/// Takes the files apart that a seed holds in one model, as initializers "fuzz.checkpoint", "fuzz.optimizer" and
/// "fuzz.evaluation" of bytes.
Parts split(const std::string &bytes);

} // namespace mpt::fuzz

#endif // MPT_TEST_FUZZ_MUTATE_H
