// SPDX-License-Identifier: Apache-2.0
//
// A request of the native API as the body of the HTTP dialect with the same fields. There is one
// parser and one set of limits, so the two cannot come to mean different things; the body costs
// microseconds. Pure, any thread.
#pragma once

#include <string>

#include "proto/front.pb.h"
#include "router/front/routes.h"

namespace weir::router {

struct NativeBody {
  Page page = Page::kChat;
  std::string json;
};
NativeBody BodyOf(const v1::GenerateRequest& request);

// What the caller calls the field that a body's parser named: `chat.turns[2].content`.
std::string NativeParam(const std::string& param);

}  // namespace weir::router
