// SPDX-License-Identifier: Apache-2.0
//
// A small blocking HTTP/1.1 client for command-line tools, health probes and tests: one connection
// per call, whole answers or server-sent events line by line. Any thread; every call ends by its
// time-outs or by *cancel. Failures are kBadField (url), kPeerLost (connection), kDeadline or
// kCancelled; an HTTP status of 4xx or 5xx is an answer, not a failure.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <string_view>

#include "base/net/http_server.h"
#include "base/runtime/time.h"
#include "base/stdx/status.h"

namespace weir {

struct HttpCall {
  std::string method = "GET";
  std::string url;  // http://host:port/path or https://...
  HttpHeaders headers;
  std::string body;
  Duration connect_timeout = std::chrono::seconds(5);
  Duration idle_timeout = std::chrono::seconds(60);  // without any byte from the server
  size_t body_bytes_max = 64u << 20;
  bool verify_tls = true;
  const std::atomic<bool>* cancel = nullptr;  // polled about every 50 ms
};

struct HttpAnswer {
  int status = 0;
  HttpHeaders headers;
  std::string body;
};

absl::StatusOr<HttpAnswer> HttpFetch(const HttpCall& call);

// As HttpFetch, but hands each line of a 2xx body (without its line end) to `line` as it arrives
// instead of collecting it; false from `line` hangs up, which is not a failure. Other answers are
// collected as usual.
absl::StatusOr<HttpAnswer> HttpLines(const HttpCall& call,
                                     const std::function<bool(std::string_view line)>& line);

}  // namespace weir
