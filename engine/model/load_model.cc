// SPDX-License-Identifier: Apache-2.0
#include "engine/model/load_model.h"

#include <string_view>

#include "absl/strings/str_cat.h"
#include "base/stdx/bytes.h"
#include "engine/model/deepseek_v3.h"
#include "engine/model/deepseek_v41.h"
#include "engine/model/hash_model.h"
#include "engine/model/null_model.h"
#include "engine/model/script_model.h"
#include "engine/model/stand_in_config.h"
#include "nlohmann/json.hpp"

namespace weir::engine {
namespace {

using Loader = absl::StatusOr<std::shared_ptr<const LoadedModel>> (*)(
    const std::string& directory, const std::string& config_json, const LoadOptions& options);

struct Family {
  std::string_view model_type;
  Loader load;
};

// One line per family.
constexpr Family kFamilies[] = {
    {"deepseek_v2", LoadDeepseekV3},
    {"deepseek_v3", LoadDeepseekV3},
    {"deepseek_v32", LoadDeepseekV3},
    {"deepseek_v41", LoadDeepseekV41},
    {"weir_hash", LoadHashModel},
    {"weir_null", LoadNullModel},
    {"weir_script", LoadScriptModel},
};

constexpr size_t kConfigBytesMax = 4u << 20;

}  // namespace

absl::StatusOr<std::shared_ptr<const LoadedModel>> LoadModel(const std::string& directory,
                                                             const LoadOptions& options) {
  const std::string path = directory + "/config.json";
  WEIR_ASSIGN(const std::string text, ReadWholeFile(path, kConfigBytesMax));
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return Error(Reason::kBadField, absl::StrCat(path, " is not a JSON object"));
  }
  const auto found = json.find("model_type");
  if (found == json.end() || !found->is_string()) {
    return Error(Reason::kBadField, absl::StrCat(path, ": model_type must be a string"),
                 "model_type");
  }
  const auto& type = found->get_ref<const std::string&>();
  for (const Family& family : kFamilies) {
    if (family.model_type == type) return family.load(directory, text, options);
  }
  return Error(Reason::kUnknownModel,
               absl::StrCat(path, ": model_type \"", type, "\" is not supported by this build"),
               "model_type");
}

}  // namespace weir::engine
