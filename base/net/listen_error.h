// SPDX-License-Identifier: Apache-2.0
//
// Why an address could not be listened on, where the library that tried does not say. Tries the same
// again by hand and closes it at once; any thread, blocks for no longer than a system call or two.
#pragma once

#include <string>

namespace weir {

// `address` is host:port. The system's words ("Address already in use"); "is not an IP address and
// port" for what is none; empty when it can be listened on now.
std::string WhyNotListening(const std::string& address);

}  // namespace weir
