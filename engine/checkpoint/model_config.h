// SPDX-License-Identifier: Apache-2.0
//
// What config.json of a checkpoint says, every field checked before anything uses it: presence,
// range, and the relations between fields that shapes depend on. Pure; errors are kBadField and
// name the field. Limits keep every product of two sizes far inside 64 bits.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/stdx/ids.h"
#include "base/stdx/status.h"

namespace weir::engine {

struct YarnConfig {
  double factor = 1;
  double original_positions = 0;
  double beta_fast = 32;
  double beta_slow = 1;
  double mscale_all_dim = 0;
};

// What every family says of itself.
struct TextShape {
  int vocab = 0;
  int hidden = 0;
  int layers = 0;
  double norm_epsilon = 0;
  int positions_max = 0;
  double rope_theta = 0;
  std::optional<YarnConfig> yarn;

  int experts = 0;  // n_routed_experts
  int experts_per_token = 0;
  int expert_width = 0;  // moe_intermediate_size
  double routed_scale = 1;

  int index_heads = 0;  // 0: attention reads every token
  int index_dim = 0;
  int index_topk = 0;

  int block_rows = 0;  // weight_block_size; 0 where no weight is quantised
  int block_cols = 0;
  std::vector<TokenId> stop_tokens;  // eos_token_id
};

enum class RouterKind : uint8_t {
  kSigmoidBias = 0,    // V3, V3.2: groups by the sum of their two best
  kSoftmaxGreedy = 1,  // V2-Lite
  kSoftmaxGroups = 2,  // V2: groups by their best
};

// DeepSeek V2, V3, R1 and V3.2: latent attention, a router with groups, shared experts, and in V3.2
// an index that selects which tokens attention reads.
struct DeepseekV3Config : TextShape {
  std::string model_type;
  int dense_layers = 0;  // first_k_dense_replace
  int dense_width = 0;   // intermediate_size
  int heads = 0;
  int q_rank = 0;     // q_lora_rank; 0 = queries are projected directly
  int kv_rank = 0;    // kv_lora_rank
  int nope_dim = 0;   // qk_nope_head_dim
  int rope_dim = 0;   // qk_rope_head_dim
  int value_dim = 0;  // v_head_dim
  int shared_experts = 0;
  RouterKind router = RouterKind::kSigmoidBias;
  int groups = 1;
  int groups_kept = 1;
  bool normalise = true;  // norm_topk_prob
  int draft_layers = 0;   // num_nextn_predict_layers, which releases may leave out
};

// Accepts "deepseek_v2", "deepseek_v3" and "deepseek_v32".
absl::StatusOr<DeepseekV3Config> ParseDeepseekV3Config(std::string_view json);

// `model_type` of a config.json.
absl::StatusOr<std::string> ParseModelType(std::string_view json);

inline constexpr size_t kConfigBytesMax = size_t{1} << 20;

}  // namespace weir::engine
