// SPDX-License-Identifier: Apache-2.0
#include "codec/dialect/models_body.h"

#include <ctime>

#include "codec/conversation/json_text.h"

namespace weir::codec {
namespace {

// RFC 3339.
void AppendUtc(int64_t seconds, std::string* out) {
  const auto time = static_cast<time_t>(seconds);
  std::tm parts{};
  char text[32];
  if (gmtime_r(&time, &parts) == nullptr) parts = {};
  out->append(text, std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts));
}

void AppendModel(const ModelCard& model, std::string* out) {
  *out += R"({"id":)";
  AppendJsonString(model.id, out);
  *out += R"(,"object":"model","type":"model","display_name":)";
  AppendJsonString(model.id, out);
  *out += R"(,"created":)";
  AppendJsonNumber(model.created, out);
  *out += R"(,"created_at":")";
  AppendUtc(model.created, out);
  out->push_back('"');
  *out += R"(,"owned_by":)";
  AppendJsonString(model.owned_by, out);
  if (model.max_model_len > 0) {
    *out += R"(,"max_model_len":)";
    AppendJsonNumber(int64_t{model.max_model_len}, out);
  }
  out->push_back('}');
}

void AppendIdOrNull(const ModelCard* model, std::string* out) {
  if (model == nullptr) {
    *out += "null";
  } else {
    AppendJsonString(model->id, out);
  }
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
  body += R"(],"has_more":false,"first_id":)";
  AppendIdOrNull(models.empty() ? nullptr : &models.front(), &body);
  body += R"(,"last_id":)";
  AppendIdOrNull(models.empty() ? nullptr : &models.back(), &body);
  body.push_back('}');
  return body;
}

std::string ModelBody(const ModelCard& model) {
  std::string body;
  AppendModel(model, &body);
  return body;
}

}  // namespace weir::codec
