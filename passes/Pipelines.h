// Registration of every pass and of the named phases that make up the compiler.
#ifndef MPT_PASSES_PIPELINES_H
#define MPT_PASSES_PIPELINES_H

namespace mpt {

/// Registers mpt's passes, and the upstream passes that its pipelines use, by flag.
void registerAllPasses();

} // namespace mpt

#endif // MPT_PASSES_PIPELINES_H
