// SPDX-License-Identifier: Apache-2.0
#include "engine/prefill/prefill_core.h"

#include <utility>

#include "engine/prefill/prefill_impl.h"

namespace weir::engine {

PrefillCore::PrefillCore(Config config) : impl_(std::make_unique<Impl>(std::move(config))) {}
PrefillCore::~PrefillCore() = default;

void PrefillCore::On(Instant now, const Event& event, Actions* out) { impl_->On(now, event, out); }
Instant PrefillCore::NextDeadline() const { return impl_->NextDeadline(); }
EngineState PrefillCore::state() const { return impl_->state(); }
std::string PrefillCore::CheckInvariants() const { return impl_->CheckInvariants(); }
std::string PrefillCore::CheckPages() const { return impl_->CheckPages(); }
std::vector<PrefillCore::RequestInfo> PrefillCore::Requests() const { return impl_->Requests(); }

}  // namespace weir::engine
