// SPDX-License-Identifier: Apache-2.0
//
// The Channel inside one process: messages move from hand to hand without a socket or a copy. See
// channel.h for the contract; a MemHub is the "network" of names its channels can dial, is
// thread-safe and must outlive them. Create fails with kBadField when the name is taken.
#pragma once

#include <memory>

#include "base/net/channel.h"

namespace weir {

class MemHub {
 public:
  MemHub();
  ~MemHub();

  // `handler` is borrowed and must outlive the channel.
  absl::StatusOr<std::unique_ptr<Channel>> Create(Channel::Options options,
                                                  Channel::Handler* handler);

  class State;

 private:
  std::shared_ptr<State> state_;
};

}  // namespace weir
