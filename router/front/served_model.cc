// SPDX-License-Identifier: Apache-2.0
#include "router/front/served_model.h"

#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <system_error>

#include <nlohmann/json.hpp>

#include "base/obs/log.h"
#include "codec/template/template.h"
#include "codec/token/tokenizer.h"

namespace weir::router {
namespace {

using Json = nlohmann::json;

constexpr uintmax_t kConfigBytesMax = 16u << 20;

absl::StatusOr<Json> ReadJson(const std::string& path) {
  std::error_code error;
  const uintmax_t size = std::filesystem::file_size(path, error);
  if (error) return Error(Reason::kBadField, path + " cannot be read", "model.path");
  if (size > kConfigBytesMax) return Error(Reason::kBadField, path + " is too large", "model.path");
  std::ifstream file(path, std::ios::binary);
  std::stringstream text;
  text << file.rdbuf();
  Json json = Json::parse(text.str(), nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return Error(Reason::kBadField, path + " is not a JSON object", "model.path");
  }
  return json;
}

// A whole number of [0, max] or, where allowed, a list of such; anything else is a bad checkpoint.
absl::StatusOr<std::vector<int64_t>> Numbers(const Json& json, const char* key, int64_t max) {
  std::vector<int64_t> numbers;
  const auto found = json.find(key);
  if (found == json.end() || found->is_null()) return numbers;
  const Json list = found->is_array() ? *found : Json::array({*found});
  for (const Json& item : list) {
    if (!item.is_number_integer() || item.get<int64_t>() < 0 || item.get<int64_t>() > max) {
      return Error(Reason::kBadField,
                   std::string("config.json: ") + key + " must be whole numbers of 0 to " +
                       std::to_string(max),
                   key);
    }
    numbers.push_back(item.get<int64_t>());
  }
  return numbers;
}

absl::StatusOr<int64_t> Number(const Json& json, const char* key, int64_t max) {
  WEIR_ASSIGN(const std::vector<int64_t> numbers, Numbers(json, key, max));
  return numbers.empty() ? 0 : numbers.front();
}

std::string TextOf(const Json& json, const char* key) {
  const auto found = json.find(key);
  return found != json.end() && found->is_string() ? found->get<std::string>() : std::string();
}

absl::StatusOr<std::shared_ptr<const codec::Renderer>> MakeRenderer(
    const ServedModelSource& source, const Json& config, TokenId vocab,
    const std::vector<TokenId>& stop_tokens) {
  const std::string path = source.directory + "/tokenizer.json";
  std::error_code error;
  if (!std::filesystem::exists(path, error)) {
    if (error) {
      return Error(Reason::kBadField, path + " cannot be read: " + error.message(), "model.path");
    }
    // Models of ours that stand in for one need none.
    if (TextOf(config, "model_type").rfind("weir_", 0) != 0) {
      Log(LogLevel::kWarn, "the checkpoint has no tokenizer.json: only prompts of token ids are served",
          {{"path", path}});
    }
    WEIR_ASSIGN(const int64_t bos, Number(config, "bos_token_id", vocab - 1));
    const TokenId eos = stop_tokens.empty() ? 1 : stop_tokens.front();
    return codec::Renderer::WithoutChat(
        codec::Tokenizer::IdsOnly(vocab, static_cast<TokenId>(bos), eos), vocab);
  }
  WEIR_ASSIGN(auto tokenizer, codec::Tokenizer::FromFile(path));
  absl::StatusOr<codec::TemplateKind> kind =
      source.template_name.empty()
          ? codec::ChooseTemplate(TextOf(config, "model_type"), tokenizer->vocab())
          : codec::TemplateByName(source.template_name);
  if (!kind.ok()) {
    if (!source.template_name.empty()) return kind.status();
    return codec::Renderer::WithoutChat(std::move(tokenizer), vocab);
  }
  codec::RenderOptions options;
  WEIR_ASSIGN(options.earlier, codec::EarlierReasoningByName(source.earlier_reasoning));
  options.keep_attribution = source.keep_attribution;
  return codec::Renderer::Create(std::move(tokenizer), *kind, vocab, options);
}

}  // namespace

absl::StatusOr<ServedModel> LoadServedModel(const ServedModelSource& source) {
  const std::string config_path = source.directory + "/config.json";
  WEIR_ASSIGN(const Json config, ReadJson(config_path));
  ServedModel model;
  model.name = source.name;
  if (model.name.empty()) {
    const std::filesystem::path directory =
        std::filesystem::absolute(source.directory).lexically_normal();
    model.name = directory.has_filename() ? directory.filename().string()
                                          : directory.parent_path().filename().string();
  }
  struct stat info {};
  if (stat(config_path.c_str(), &info) == 0) model.created = info.st_mtime;
  // Models that see images keep what concerns text apart.
  const auto part = config.find("text_config");
  const Json& text = part != config.end() && part->is_object() ? *part : config;
  WEIR_ASSIGN(const int64_t vocab, Number(text, "vocab_size", INT32_MAX));
  if (vocab == 0) {
    return Error(Reason::kBadField, config_path + " has no vocab_size", "vocab_size");
  }
  for (const char* key : {"positions_max", "max_position_embeddings"}) {
    WEIR_ASSIGN(const int64_t positions, Number(text, key, UINT32_MAX));
    if (model.positions_max == 0) model.positions_max = static_cast<uint32_t>(positions);
  }
  for (const char* key : {"stop_tokens", "eos_token_id"}) {
    WEIR_ASSIGN(const std::vector<int64_t> stops, Numbers(config, key, vocab - 1));
    if (model.stop_tokens.empty()) model.stop_tokens.assign(stops.begin(), stops.end());
  }
  WEIR_ASSIGN(model.renderer,
              MakeRenderer(source, config, static_cast<TokenId>(vocab), model.stop_tokens));
  if (const auto eos = model.renderer->tokenizer()->vocab().eos();
      eos && model.stop_tokens.empty()) {
    model.stop_tokens.push_back(*eos);
  }
  return model;
}

}  // namespace weir::router
