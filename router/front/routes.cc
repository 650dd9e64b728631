// SPDX-License-Identifier: Apache-2.0
#include "router/front/routes.h"

namespace weir::router {
namespace {

using codec::Api;

struct Route {
  std::string_view path;  // after the prefixes
  Page page;
  Api api;
  bool answered;
  const char* name;
};

// Posts alone.
constexpr Route kRoutes[] = {
    {"/chat/completions", Page::kChat, Api::kChat, true, "POST /v1/chat/completions"},
    {"/completions", Page::kCompletions, Api::kCompletions, true, "POST /v1/completions"},
    {"/messages", Page::kMessages, Api::kMessages, true, "POST /v1/messages"},
    {"/messages/count_tokens", Page::kCountTokens, Api::kMessages, false,
     "POST /v1/messages/count_tokens"},
    {"/responses", Page::kResponses, Api::kResponses, true, "POST /v1/responses"},
    {"/tokenize", Page::kTokenize, Api::kChat, false, "POST /tokenize"},
    {"/detokenize", Page::kDetokenize, Api::kCompletions, false, "POST /detokenize"},
    {"/apply-template", Page::kApplyTemplate, Api::kChat, false, "POST /apply-template"},
};

const Route* RouteOf(Page page) {
  for (const Route& route : kRoutes) {
    if (route.page == page) return &route;
  }
  return nullptr;
}

// Whether `path` went on after `prefix`, which is then gone.
bool Strip(std::string_view prefix, std::string_view* path) {
  if (path->substr(0, prefix.size()) != prefix || path->size() == prefix.size() ||
      (*path)[prefix.size()] != '/') {
    return false;
  }
  path->remove_prefix(prefix.size());
  return true;
}

}  // namespace

Target TargetOf(std::string_view path) {
  Target target;
  if (Strip("/anthropic", &path)) target.shape = codec::ErrorShape::kAnthropic;
  if (!Strip("/v1", &path)) Strip("/beta", &path);
  constexpr std::string_view kModels = "/models";
  if (path == kModels) target.page = Page::kModels;
  if (Strip(kModels, &path)) {
    target.page = Page::kModel;
    target.model = path.substr(1);
  }
  if (target.page != Page::kNone) return target;
  for (const Route& route : kRoutes) {
    if (path == route.path) target.page = route.page;
  }
  if (target.page == Page::kMessages || target.page == Page::kCountTokens) {
    target.shape = codec::ErrorShape::kAnthropic;
  }
  return target;
}

bool TakesBody(Page page) { return RouteOf(page) != nullptr; }

bool IsAnswered(Page page) {
  const Route* route = RouteOf(page);
  return route != nullptr && route->answered;
}

Api ApiOf(Page page) {
  const Route* route = RouteOf(page);
  return route == nullptr ? Api::kChat : route->api;
}

const char* NameOf(Page page) {
  const Route* route = RouteOf(page);
  return route == nullptr ? "GET /v1/models" : route->name;
}

}  // namespace weir::router
