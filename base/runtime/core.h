// SPDX-License-Identifier: Apache-2.0
//
// What every *_core looks like. A core decides: it takes one event at a time and says what to do,
// running to completion on one thread without clock, lock, socket or stream. Time comes in as an
// argument. The same object files run under base/runtime/driver and in replay/sim.
#pragma once

#include <concepts>

#include "base/runtime/time.h"

namespace weir {

template <class C>
concept Core = requires(C core, const C const_core, Instant now, const typename C::Event& event,
                        typename C::Actions* out) {
  // Appends to *out what the shell has to do. Never blocks, never fails: what goes wrong becomes an
  // action or a state.
  { core.On(now, event, out) } -> std::same_as<void>;
  // The driver delivers a Tick event at or soon after this instant; kNever when nothing is due.
  { const_core.NextDeadline() } -> std::same_as<Instant>;
};

}  // namespace weir
