// SPDX-License-Identifier: Apache-2.0
#include "engine/decode/decode_core.h"

#include <utility>

#include "engine/decode/decode_impl.h"

namespace weir::engine {

DecodeCore::DecodeCore(Config config) : impl_(std::make_unique<Impl>(std::move(config))) {}
DecodeCore::~DecodeCore() = default;

void DecodeCore::On(Instant now, const Event& event, Actions* out) { impl_->On(now, event, out); }
Instant DecodeCore::NextDeadline() const { return impl_->NextDeadline(); }
EngineState DecodeCore::state() const { return impl_->state(); }
std::string DecodeCore::CheckInvariants() const { return impl_->CheckInvariants(); }
std::string DecodeCore::CheckPages() const { return impl_->CheckPages(); }
std::vector<DecodeCore::SequenceInfo> DecodeCore::Sequences() const { return impl_->Sequences(); }

}  // namespace weir::engine
