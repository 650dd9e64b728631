// SPDX-License-Identifier: Apache-2.0
//
// A responder whose client is a string, for tests and benchmarks: what would be sent is kept (or only
// counted), and the caller plays a client that stalls or leaves. One thread, nothing blocks; the loop
// is only named, never run.
#pragma once

#include <string>
#include <utility>

#include "base/net/http_server.h"

namespace weir::router {

class MemoryResponder final : public HttpResponder {
 public:
  explicit MemoryResponder(Loop* loop, bool keep = true) : loop_(loop), keep_(keep) {}

  void Respond(int status, HttpHeaders headers, std::string body) override {
    status_ = status;
    headers_ = std::move(headers);
    body_ = std::move(body);
    bytes_ += body_.size();
    ended_ = true;
  }
  void StartStream(int status, HttpHeaders headers) override {
    status_ = status;
    headers_ = std::move(headers);
  }
  bool Write(std::string_view bytes) override {
    bytes_ += bytes.size();
    if (keep_) body_.append(bytes);
    return !stalled_;
  }
  void End() override { ended_ = true; }
  void OnDrained(Task drained) override { drained_ = std::move(drained); }
  void OnGone(Task gone) override { on_gone_ = std::move(gone); }
  bool gone() const override { return gone_; }
  size_t pending_bytes() const override { return 0; }
  Loop& loop() override { return *loop_; }

  // The client takes nothing more, takes everything again, leaves.
  void Stall() { stalled_ = true; }
  void Unstall() {
    stalled_ = false;
    if (Task drained = std::exchange(drained_, nullptr)) drained();
  }
  void Leave() {
    gone_ = true;
    if (Task gone = std::exchange(on_gone_, nullptr)) gone();
  }

  int status() const { return status_; }
  const HttpHeaders& headers() const { return headers_; }
  const std::string& body() const { return body_; }
  uint64_t bytes() const { return bytes_; }
  bool ended() const { return ended_; }

 private:
  Loop* const loop_;
  const bool keep_;
  int status_ = 0;
  HttpHeaders headers_;
  std::string body_;
  uint64_t bytes_ = 0;
  bool ended_ = false;
  bool stalled_ = false;
  bool gone_ = false;
  Task drained_;
  Task on_gone_;
};

}  // namespace weir::router
