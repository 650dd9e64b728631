// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <filesystem>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/config/load.h"
#include "base/stdx/planted.h"
#include "codec/token/tokenizer.h"
#include "engine/checkpoint/mapped_file.h"
#include "engine/checkpoint/model_config.h"
#include "engine/checkpoint/model_facts.h"
#include "engine/checkpoint/weights.h"
#include "nlohmann/json.hpp"
#include "weir/commands.h"

namespace weir {
namespace {

using engine::ModelFacts;
using engine::ModelPart;
using engine::PartFacts;
using nlohmann::ordered_json;

constexpr double kGib = 1024.0 * 1024 * 1024;

// What lies beside config.json.
struct Stored {
  bool present = false;
  size_t tensors = 0;
  uint64_t bytes = 0;
  size_t tokens = 0;  // of tokenizer.json; 0 where there is none
};

std::string Size(int64_t bytes) {
  const auto value = static_cast<double>(bytes);
  if (value >= kGib / 10) return absl::StrFormat("%.2f GiB", value / kGib);
  if (value >= 1024 * 1024 / 10) return absl::StrFormat("%.2f MiB", value / 1024 / 1024);
  return absl::StrFormat("%.2f KiB", value / 1024);
}

std::string Count(double parameters) {
  return parameters >= 1e8 ? absl::StrFormat("%.2f B", parameters / 1e9)
                           : absl::StrFormat("%.2f M", parameters / 1e6);
}

bool HasWeights(const std::string& directory) {
  std::error_code ignored;
  return std::filesystem::exists(directory + "/model.safetensors", ignored) ||
         std::filesystem::exists(directory + "/model.safetensors.index.json", ignored);
}

absl::StatusOr<size_t> CheckTokenizer(const std::string& path, int vocab) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return 0;
  WEIR_ASSIGN(const std::shared_ptr<const codec::Tokenizer> tokenizer,
              codec::Tokenizer::FromFile(path));
  const auto tokens = static_cast<size_t>(tokenizer->vocab().size());
  if (tokens > static_cast<size_t>(vocab)) {
    return Error(
        Reason::kBadField,
        absl::StrCat(path, ": ", tokens, " tokens, but config.json has a vocab_size of ", vocab),
        "vocab_size");
  }
  return tokens;
}

absl::StatusOr<Stored> CheckStored(const InspectArgs& args, const ModelFacts& facts) {
  Stored stored;
  if (IsPlanted(Planted::kAcceptBadField)) return stored;
  WEIR_ASSIGN(stored.tokens, CheckTokenizer(args.directory + "/tokenizer.json", facts.vocab));
  if (!HasWeights(args.directory)) return stored;
  WEIR_ASSIGN(const std::unique_ptr<engine::Weights> weights,
              engine::Weights::Open(args.directory));
  WEIR_TRY(engine::CheckTensors(*weights, facts.tensors));
  WEIR_TRY(engine::CheckScales(*weights, facts.tensors));
  stored.present = true;
  stored.tensors = weights->count();
  stored.bytes = weights->bytes();
  return stored;
}

void PrintParts(const ModelFacts& facts) {
  std::printf("%-18s %10s %14s %14s\n", "part", "tensors", "parameters", "as released");
  const auto line = [](std::string_view name, const PartFacts& part) {
    std::printf("%-18s %10lld %14s %14s\n", std::string(name).c_str(),
                static_cast<long long>(part.tensors),
                Count(static_cast<double>(part.parameters)).c_str(), Size(part.bytes).c_str());
  };
  for (int i = 0; i < engine::kModelPartCount; ++i) {
    const auto part = static_cast<ModelPart>(i);
    if (facts.part(part).tensors > 0) line(engine::ModelPartName(part), facts.part(part));
  }
  line("all", facts.Total());
}

void PrintTable(const InspectArgs& args, const ModelFacts& facts, const Stored& stored) {
  std::printf("%s: %s, %d layers, at most %d positions\n", args.directory.c_str(),
              facts.model_type.c_str(), facts.layers, facts.positions_max);
  std::printf("%s parameters decode a token, %s of them for each\n\n",
              Count(static_cast<double>(facts.BackboneParameters())).c_str(),
              Count(facts.active_parameters).c_str());
  PrintParts(facts);
  if (stored.present) {
    std::printf("\nweights: %zu tensors, %s, all as the configuration asks\n", stored.tensors,
                Size(static_cast<int64_t>(stored.bytes)).c_str());
  } else {
    std::printf("\nweights: none here; sizes are those of the release\n");
  }
  if (stored.tokens > 0) std::printf("tokenizer: %zu tokens\n", stored.tokens);
  std::printf("\nKV per token\n");
  for (const engine::KvFacts& kv : facts.kv) {
    std::printf("  %-34s %12.2f bytes, %s for %d tokens\n", kv.format.c_str(), kv.bytes_per_token,
                Size(static_cast<int64_t>(kv.bytes_per_token * facts.positions_max)).c_str(),
                facts.positions_max);
  }
  if (!facts.states.empty()) std::printf("\nstate per sequence\n");
  for (const engine::StateFacts& state : facts.states) {
    std::printf("  %-34s %12s\n", state.name.c_str(), Size(state.bytes).c_str());
  }
  const double kv = facts.kv[0].bytes_per_token;
  std::printf("\nmemory by role, for %d sequences of %d tokens\n", args.sequences, args.tokens);
  std::printf("  %-8s %12s %16s %12s %12s\n", "role", "weights", "of these tables", "KV", "all");
  for (const engine::RoleFacts& role : facts.roles) {
    const int64_t cache =
        role.keeps_kv
            ? static_cast<int64_t>(args.sequences *
                                   (kv * args.tokens + static_cast<double>(role.state_bytes)))
            : 0;
    std::printf("  %-8s %12s %16s %12s %12s\n", std::string(role.role).c_str(),
                Size(role.weight_bytes).c_str(), Size(role.table_bytes).c_str(),
                Size(cache).c_str(), Size(role.weight_bytes + cache).c_str());
  }
}

void PrintJson(const ModelFacts& facts, const Stored& stored) {
  const auto part_json = [](const PartFacts& part) {
    return ordered_json{
        {"tensors", part.tensors}, {"parameters", part.parameters}, {"bytes", part.bytes}};
  };
  ordered_json out = {{"model_type", facts.model_type},
                      {"layers", facts.layers},
                      {"positions_max", facts.positions_max},
                      {"backbone_parameters", facts.BackboneParameters()},
                      {"active_parameters", facts.active_parameters},
                      {"total", part_json(facts.Total())}};
  for (int i = 0; i < engine::kModelPartCount; ++i) {
    const auto part = static_cast<ModelPart>(i);
    if (facts.part(part).tensors == 0) continue;
    out["parts"][std::string(engine::ModelPartName(part))] = part_json(facts.part(part));
  }
  for (const engine::KvFacts& kv : facts.kv) {
    out["kv"].push_back({{"format", kv.format}, {"bytes_per_token", kv.bytes_per_token}});
  }
  out["state_per_sequence"] = ordered_json::object();
  for (const engine::StateFacts& state : facts.states) {
    out["state_per_sequence"][state.name] = state.bytes;
  }
  for (const engine::RoleFacts& role : facts.roles) {
    out["roles"][std::string(role.role)] = {{"weight_bytes", role.weight_bytes},
                                            {"table_bytes", role.table_bytes},
                                            {"state_bytes_per_sequence", role.state_bytes},
                                            {"keeps_kv", role.keeps_kv}};
  }
  out["tokenizer_tokens"] = stored.tokens;
  out["weights"] = nullptr;
  if (stored.present) out["weights"] = {{"tensors", stored.tensors}, {"bytes", stored.bytes}};
  std::printf("%s\n", out.dump(1).c_str());
}

absl::Status Inspect(const InspectArgs& args) {
  WEIR_ASSIGN(const std::string json,
              engine::ReadTextFile(args.directory + "/config.json", engine::kConfigBytesMax));
  WEIR_ASSIGN(ModelFacts facts, engine::DescribeModel(json));
  if (IsPlanted(Planted::kWrongFigure)) facts.kv[0].bytes_per_token += 1;
  WEIR_ASSIGN(const Stored stored, CheckStored(args, facts));
  if (args.json) {
    PrintJson(facts, stored);
  } else {
    PrintTable(args, facts, stored);
  }
  return absl::OkStatus();
}

}  // namespace

int RunInspect(const InspectArgs& args) {
  ArmPlantedFromEnvironment();
  const absl::Status status = Inspect(args);
  if (status.ok()) return 0;
  std::fprintf(stderr, "weir inspect: %s: %s\n", args.directory.c_str(),
               std::string(status.message()).c_str());
  return 2;
}

}  // namespace weir
