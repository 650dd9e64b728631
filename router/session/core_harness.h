// SPDX-License-Identifier: Apache-2.0
//
// Test-only: a RouterCore with a hand-moved clock and engines played by the test. Each step returns
// what the core wanted done; nothing happens by itself.
#pragma once

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "router/session/router_core.h"

namespace weir::router {

inline constexpr InstanceId kRouter{7};
inline constexpr InstanceId kP1{11};
inline constexpr InstanceId kP2{12};
inline constexpr InstanceId kD1{21};
inline constexpr InstanceId kD2{22};

inline pb::Hello HelloOf(Role role, InstanceId id) {
  pb::Hello hello;
  hello.set_protocol_min(1);
  hello.set_protocol_max(1);
  hello.set_instance(id.value);
  hello.set_role(role == Role::kPrefill ? pb::ROLE_KIND_PREFILL : pb::ROLE_KIND_DECODE);
  hello.set_listen_address("host:" + std::to_string(id.value));
  pb::Geometry* geometry = hello.mutable_geometry();
  geometry->set_model("toy");
  geometry->set_model_digest("m");
  geometry->set_layout_digest("l");
  geometry->set_block_tokens(4);
  geometry->set_vocab(100);
  geometry->set_positions_max(64);
  geometry->set_decoder_tail_rows(6);
  geometry->set_sequence_tokens_max(48);
  return hello;
}

struct CoreHarness {
  explicit CoreHarness(RouterCore::Config config = {.self = kRouter}) : core(config) {}

  RouterActions On(const RouterEvent& event) {
    RouterActions out;
    core.On(now, event, &out);
    return out;
  }
  RouterActions Up(Role role, InstanceId id) { return Up(HelloOf(role, id)); }
  RouterActions Up(const pb::Hello& hello) {
    return On(PeerUp{InstanceId{hello.instance()}, hello});
  }
  RouterActions Down(InstanceId id) { return On(PeerDown{id}); }
  // One engine of each role, or two.
  void UpAll(int each = 2) {
    Up(Role::kPrefill, kP1);
    Up(Role::kDecode, kD1);
    if (each < 2) return;
    Up(Role::kPrefill, kP2);
    Up(Role::kDecode, kD2);
  }
  RouterActions Ask(uint64_t id, std::vector<TokenId> prompt = {1, 2, 3, 4, 5, 6, 7, 8},
                    uint32_t new_tokens_max = 10, bool logprobs = false) {
    Submit submit;
    submit.request = RequestId{id};
    submit.prompt = std::move(prompt);
    submit.new_tokens_max = new_tokens_max;
    submit.sampling.set_seed(99);
    submit.sampling.set_logprobs(logprobs);
    return On(submit);
  }
  RouterActions Say(InstanceId from, const pb::Envelope& message) {
    return On(Received{from, message});
  }
  RouterActions Advance(Duration by) {
    now += by;
    RouterActions out;
    while (core.NextDeadline() <= now) core.On(now, Tick{}, &out);
    return out;
  }

  static void FillKey(pb::RequestKey* key, uint64_t id, uint32_t attempt) {
    key->set_router(kRouter.value);
    key->set_request(id);
    key->set_attempt(attempt);
  }
  RouterActions Reserved(InstanceId from, uint64_t id, uint32_t attempt) {
    pb::Envelope message;
    FillKey(message.mutable_reserved()->mutable_key(), id, attempt);
    return Say(from, message);
  }
  RouterActions Queued(InstanceId from, uint64_t id, uint32_t attempt) {
    pb::Envelope message;
    FillKey(message.mutable_reserve_queued()->mutable_key(), id, attempt);
    return Say(from, message);
  }
  RouterActions ReserveFailed(InstanceId from, uint64_t id, uint32_t attempt, Reason reason) {
    pb::Envelope message;
    FillKey(message.mutable_reserve_failed()->mutable_key(), id, attempt);
    message.mutable_reserve_failed()->mutable_failure()->set_reason(static_cast<uint32_t>(reason));
    return Say(from, message);
  }
  RouterActions PrefillFailed(InstanceId from, uint64_t id, uint32_t attempt, Reason reason) {
    pb::Envelope message;
    FillKey(message.mutable_prefill_failed()->mutable_key(), id, attempt);
    message.mutable_prefill_failed()->mutable_failure()->set_reason(static_cast<uint32_t>(reason));
    return Say(from, message);
  }
  RouterActions Abort(InstanceId from, uint64_t id, uint32_t attempt, Reason reason) {
    pb::Envelope message;
    FillKey(message.mutable_handover_abort()->mutable_key(), id, attempt);
    message.mutable_handover_abort()->mutable_failure()->set_reason(static_cast<uint32_t>(reason));
    return Say(from, message);
  }
  RouterActions Tokens(InstanceId from, uint64_t id, uint32_t attempt, uint32_t position,
                       std::vector<TokenId> ids,
                       pb::FinishReason finish = pb::FINISH_REASON_UNSPECIFIED,
                       Reason reason = Reason::kOk) {
    pb::Envelope message;
    pb::TokenRow* row = message.mutable_tokens()->add_rows();
    FillKey(row->mutable_key(), id, attempt);
    row->set_position(position);
    row->mutable_ids()->Add(ids.begin(), ids.end());
    row->set_finish(finish);
    if (reason != Reason::kOk) {
      row->mutable_failure()->set_reason(static_cast<uint32_t>(reason));
    }
    return Say(from, message);
  }

  Instant now{};
  RouterCore core;
};

// The only message of its kind in `out`; a failure and an empty message otherwise.
inline RouterActions::Send Only(const RouterActions& out, pb::Envelope::BodyCase kind) {
  RouterActions::Send found;
  int count = 0;
  for (const auto& send : out.sends) {
    if (send.message.body_case() != kind) continue;
    found = send;
    ++count;
  }
  EXPECT_EQ(count, 1) << "messages of kind " << kind;
  return found;
}

inline int CountOf(const RouterActions& out, pb::Envelope::BodyCase kind) {
  int count = 0;
  for (const auto& send : out.sends) count += send.message.body_case() == kind ? 1 : 0;
  return count;
}

inline InstanceId OtherOf(InstanceId id) {
  if (id == kD1) return kD2;
  if (id == kD2) return kD1;
  return id == kP1 ? kP2 : kP1;
}

}  // namespace weir::router
