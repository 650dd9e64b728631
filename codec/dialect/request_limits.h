// SPDX-License-Identifier: Apache-2.0
//
// Bounds on what a body may ask for. Plain values, any thread; the front fills them from the
// configuration, the defaults are the documented ones.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weir::codec {

struct RequestLimits {
  size_t body_bytes_max = size_t{32} << 20;
  int depth_max = 127;  // nesting of JSON containers
  size_t messages_max = 16384;
  size_t tools_max = 1024;
  size_t stops_max = 16;
  size_t stop_bytes_max = 1024;
  int n_max = 16;
  int top_logprobs_max = 20;
  size_t logit_bias_max = 1024;
  size_t name_bytes_max = 512;  // model, user, cache_salt
  bool developer_role = true;   // accept `developer` as an alias of system
};

}  // namespace weir::codec
