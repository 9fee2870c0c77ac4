// Resampling (placeholder table until its rules are in).
#include "Binder.h"

void mpt::addResizeRules(RuleTable &t) { (void)t; }
