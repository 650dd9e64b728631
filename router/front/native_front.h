// SPDX-License-Identifier: Apache-2.0
//
// NativeFront: the door of the native API (proto/front.proto) beside HttpFront's. Create, SetServing and
// Shutdown belong to the process's main thread or the loop, whichever made it; Shutdown waits for what
// runs, so the loop must still run. It borrows the loop and the front, which outlive it. Whoever reads
// too slowly or leaves is cancelled; what is too large or has no key is refused with a status.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "base/runtime/loop.h"

namespace weir::router {

class HttpFront;

class NativeFront {
 public:
  virtual ~NativeFront() = default;  // Shutdown
  virtual int port() const = 0;
  // What the standard health service answers.
  virtual void SetServing(bool serving) = 0;
  virtual void Shutdown() = 0;
};

struct NativeFrontOptions {
  std::string address;  // host:port; port 0 picks one
  std::string tls_certificate_file;  // PEM; both or none
  std::string tls_key_file;
  size_t message_bytes_max = size_t{32} << 20;
  Duration slow_client = std::chrono::seconds(30);  // pending events, none taken: cancelled
  Loop* loop = nullptr;
  HttpFront* front = nullptr;
};

// By gRPC.
absl::StatusOr<std::unique_ptr<NativeFront>> CreateGrpcFront(NativeFrontOptions options);

using NativeFrontFactory =
    std::function<absl::StatusOr<std::unique_ptr<NativeFront>>(NativeFrontOptions)>;

}  // namespace weir::router
