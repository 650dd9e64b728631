// SPDX-License-Identifier: Apache-2.0
#include "codec/dialect/models_body.h"

#include "codec/conversation/json_text.h"

namespace weir::codec {
namespace {

void AppendModel(const ModelCard& model, std::string* out) {
  *out += R"({"id":)";
  AppendJsonString(model.id, out);
  *out += R"(,"object":"model","created":)";
  AppendJsonNumber(model.created, out);
  *out += R"(,"owned_by":)";
  AppendJsonString(model.owned_by, out);
  if (model.max_model_len > 0) {
    *out += R"(,"max_model_len":)";
    AppendJsonNumber(int64_t{model.max_model_len}, out);
  }
  out->push_back('}');
}

}  // namespace

std::string ModelListBody(std::span<const ModelCard> models) {
  std::string body = R"({"object":"list","data":[)";
  bool first = true;
  for (const ModelCard& model : models) {
    if (!first) body.push_back(',');
    first = false;
    AppendModel(model, &body);
  }
  body += "]}";
  return body;
}

std::string ModelBody(const ModelCard& model) {
  std::string body;
  AppendModel(model, &body);
  return body;
}

}  // namespace weir::codec
