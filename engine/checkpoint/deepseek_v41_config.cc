// SPDX-License-Identifier: Apache-2.0
#include "engine/checkpoint/deepseek_v41_config.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "engine/checkpoint/config_fields.h"

namespace weir::engine {
namespace {

constexpr int64_t kLayersMax = 1024;
constexpr int64_t kRowsMax = int64_t{1} << 40;
// Values that share one scale, of FP8 rows and FP4 rows along their width.
constexpr int kScaleGroup = 32;

bool Contains(const std::vector<int>& list, int value) {
  return std::binary_search(list.begin(), list.end(), value);
}

// The last entry at or before `layer`, or -1.
int Nearest(const std::vector<int>& list, int layer) {
  const auto above = std::upper_bound(list.begin(), list.end(), layer);
  return above == list.begin() ? -1 : *(above - 1);
}

bool IsPrime(int64_t n) {
  if (n < 4) return n > 1;
  if (n % 2 == 0) return false;
  for (int64_t d = 3; d * d <= n; d += 2) {
    if (n % d == 0) return false;
  }
  return true;
}

void RequireMultiple(ConfigFields* in, const char* field, int value, int of) {
  if (value % of != 0) in->Fail(field, absl::StrCat("is ", value, ", no multiple of ", of));
}

void ReadShape(ConfigFields* in, DeepseekV41Config* c) {
  in->Expect("model_type", "deepseek_v41_text");
  c->vocab = in->Integer("vocab_size", 2, 1 << 24);
  c->hidden = in->Integer("hidden_size", 1, kSizeMax);
  c->layers = in->Integer("num_hidden_layers", 1, kLayersMax);
  c->heads = in->Integer("num_attention_heads", 1, 4096);
  in->Integer("num_key_value_heads", 1, 1);
  c->head_dim = in->Integer("head_dim", 1, 4096);
  c->rope_dim = in->Integer("qk_rope_head_dim", 2, 4096);
  c->q_rank = in->Integer("q_lora_rank", 1, kSizeMax);
  c->o_rank = in->Integer("o_lora_rank", 1, kSizeMax);
  c->o_groups = in->Integer("o_groups", 1, 4096);
  c->window = in->Integer("sliding_window", 1, kSizeMax);
  c->norm_epsilon = in->Number("rms_norm_eps", 0, 1);
  c->positions_max = in->Integer("max_position_embeddings", 1, 1 << 28);
  c->rope_theta = in->Number("rope_theta", 1.001, 1e12);
  c->compress_rope_theta = in->Number("compress_rope_theta", 1.001, 1e12);
  in->Expect("hidden_act", "silu");
  in->ExpectFalse("tie_word_embeddings");
  in->ExpectFalse("attention_bias");
  if (!in->ok()) return;
  RequireMultiple(in, "hidden_size", c->hidden, kScaleGroup);
  RequireMultiple(in, "head_dim", c->head_dim, kScaleGroup);
  if (c->rope_dim % 2 != 0) in->Fail("qk_rope_head_dim", "is odd");
  if (c->rope_dim > c->head_dim) in->Fail("qk_rope_head_dim", "exceeds head_dim");
  if (c->heads % c->o_groups != 0) in->Fail("o_groups", "does not divide num_attention_heads");
}

void ReadRouter(ConfigFields* in, DeepseekV41Config* c) {
  c->experts = in->Integer("n_routed_experts", 1, 1024);
  in->Integer("n_shared_experts", 1, 1);
  c->experts_per_token = in->Integer("num_experts_per_tok", 1, 64);
  c->expert_width = in->Integer("moe_intermediate_size", 1, kSizeMax);
  c->routed_scale = in->Number("routed_scaling_factor", 0, 1e6);
  c->swiglu_limit = in->Number("swiglu_limit", 1e-3, 1e6);
  in->Expect("scoring_func", "sqrtsoftplus");
  in->Expect("topk_method", "noaux_tc");
  if (!in->Flag("norm_topk_prob", true)) in->Fail("norm_topk_prob", "is false");
  if (!in->ok()) return;
  RequireMultiple(in, "moe_intermediate_size", c->expert_width, kScaleGroup);
  if (c->experts_per_token > c->experts) {
    in->Fail("num_experts_per_tok", "exceeds n_routed_experts");
  }
}

void ReadStreams(ConfigFields* in, DeepseekV41Config* c) {
  c->streams = in->Integer("hc_mult", 2, 8);
  c->sinkhorn_iterations = in->Integer("hc_sinkhorn_iters", 1, 1000);
  c->hc_epsilon = in->Number("hc_eps", 0, 1);
}

// Layers that read compressed rows must have a source before them, of their own ratio.
void CheckSources(ConfigFields* in, const DeepseekV41Config& c) {
  for (int i = 0; i < c.layers; ++i) {
    const int ratio = c.ratios[static_cast<size_t>(i)];
    if (ratio == 0) {
      if (c.is_kv_source(i)) in->Fail("kv_source_layer_ids", "names a layer of ratio 0");
      if (c.is_index_source(i)) in->Fail("index_source_layer_ids", "names a layer of ratio 0");
      continue;
    }
    if (c.kv_source(i) < 0) {
      in->Fail("kv_source_layer_ids", absl::StrCat("has no source for layer ", i));
    } else if (c.ratios[static_cast<size_t>(c.kv_source(i))] != ratio) {
      in->Fail("compress_ratios", absl::StrCat("of layer ", i, " differs from its source's"));
    }
    if (c.is_kv_source(i) && !c.is_index_source(i)) {
      in->Fail("index_source_layer_ids", absl::StrCat("lacks layer ", i, ", a source of KV"));
    }
    if (!in->ok()) return;
  }
}

void CheckCandidates(ConfigFields* in, const DeepseekV41Config& c) {
  const int source = c.candidate_source;
  if (source < 0) return;
  if (!c.is_kv_source(source)) {
    in->Fail("candidate_source_layer_id", "is no source of KV");
  } else if (source != c.kv_sources.back()) {
    in->Fail("candidate_source_layer_id", "is not the last source of KV");
  } else if (int64_t{c.candidate_blocks} * c.candidate_block < c.index_topk) {
    in->Fail("candidate_topk_blocks", "hold fewer rows than index_topk selects");
  }
}

void ReadSelection(ConfigFields* in, DeepseekV41Config* c) {
  const int last = std::max(0, c->layers - 1);
  for (const int64_t ratio : in->Integers("compress_ratios", 0, 2, 2 * kLayersMax)) {
    c->ratios.push_back(static_cast<int>(ratio));
  }
  c->kv_sources = in->Ascending("kv_source_layer_ids", 0, last, kLayersMax);
  c->index_sources = in->Ascending("index_source_layer_ids", 0, last, kLayersMax);
  c->index_heads = in->Integer("index_n_heads", 1, 4096);
  c->index_dim = in->Integer("index_head_dim", 1, 4096);
  c->index_topk = in->Integer("index_topk", 1, kSizeMax);
  c->candidate_source = in->IntegerOr("candidate_source_layer_id", -1, last, -1);
  if (c->candidate_source >= 0) {
    c->candidate_blocks = in->Integer("candidate_topk_blocks", 1, kSizeMax);
    c->candidate_block = in->Integer("candidate_block_size", 1, kSizeMax);
  }
  if (!in->ok()) return;
  const auto stages = static_cast<size_t>(c->layers + c->draft.stages);
  if (c->ratios.size() != stages) {
    in->Fail("compress_ratios",
             absl::StrCat("has ", c->ratios.size(), " entries for ", stages, " layers"));
    return;
  }
  if (std::any_of(c->ratios.begin() + c->layers, c->ratios.end(), [](int r) { return r != 0; })) {
    in->Fail("compress_ratios", "of a draft stage is not 0");
  }
  RequireMultiple(in, "index_head_dim", c->index_dim, kScaleGroup);
  if (c->rope_dim > c->index_dim) in->Fail("index_head_dim", "is below qk_rope_head_dim");
  CheckSources(in, *c);
  if (in->ok()) CheckCandidates(in, *c);
}

// The moduli are the primes from engram_vocab_size on, each used once. At most 16 * 7 * 32 of them
// below 2^31, so that no file makes this slow.
void FindPrimes(ConfigFields* in, int64_t from, EngramConfig* e) {
  int64_t prime = from - 1;
  for (const int64_t rows : e->rows) {
    std::vector<int64_t>& primes = e->primes.emplace_back();
    for (int i = 0; i < e->orders * e->heads; ++i) {
      do {
        ++prime;
      } while (!IsPrime(prime));
      primes.push_back(prime);
    }
    const int64_t sum = std::accumulate(primes.begin(), primes.end(), int64_t{0});
    if (sum != rows) {
      in->Fail("engram_num_embeddings",
               absl::StrCat("has ", rows, " rows where engram_vocab_size asks for ", sum));
      return;
    }
  }
}

void ReadEngram(ConfigFields* in, DeepseekV41Config* c) {
  EngramConfig& e = c->engram;
  if (!in->Has("engram_layer_ids")) return;
  e.layers = in->Ascending("engram_layer_ids", 0, std::max(0, c->layers - 1), 16);
  if (e.layers.empty()) return;
  e.rows = in->Integers("engram_num_embeddings", 1, kRowsMax, 16);
  e.orders = in->Integer("engram_max_ngram_size", 2, 8) - 1;
  e.heads = in->Integer("engram_n_heads", 1, 32);
  e.head_dim = in->Integer("engram_head_dim", 1, 4096);
  e.pad_token = in->Integer("engram_pad_token_id", 0, c->vocab - 1);
  e.compressed_vocab = in->Integer("engram_compressed_vocab_size", 1, c->vocab);
  const int from = in->Integer("engram_vocab_size", 1, 1 << 30);
  if (!in->ok()) return;
  RequireMultiple(in, "engram_head_dim", e.head_dim, kScaleGroup);
  if (e.rows.size() != e.layers.size()) {
    in->Fail("engram_num_embeddings", "needs one entry per layer of engram_layer_ids");
  }
  if (in->ok()) FindPrimes(in, from, &e);
}

void ReadDraft(ConfigFields* in, DeepseekV41Config* c) {
  DraftConfig& d = c->draft;
  d.stages = in->IntegerOr("num_nextn_predict_layers", 0, 16, 0);
  if (d.stages == 0) return;
  d.block = in->Integer("dspark_block_size", 1, 64);
  d.noise_token = in->Integer("dspark_noise_token_id", 0, c->vocab - 1);
  d.target_layers = in->Ascending("dspark_target_layer_ids", 0, std::max(0, c->layers - 1), 64);
  d.markov_rank = in->Integer("dspark_markov_rank", 1, kSizeMax);
  d.experts = in->Integer("dspark_n_routed_experts", 1, 1024);
  d.experts_per_token = in->Integer("dspark_num_experts_per_tok", 1, 64);
  if (!in->ok()) return;
  if (d.target_layers.empty()) in->Fail("dspark_target_layer_ids", "is empty");
  if (d.experts_per_token > d.experts) {
    in->Fail("dspark_num_experts_per_tok", "exceeds dspark_n_routed_experts");
  }
}

void ReadVision(ConfigFields* in, DeepseekV41Config* c) {
  VisionConfig v;
  in->Expect("model_type", "deepseek_v41_vision");
  v.layers = in->Integer("num_hidden_layers", 1, kLayersMax);
  v.hidden = in->Integer("hidden_size", 1, kSizeMax);
  v.heads = in->Integer("num_attention_heads", 1, 4096);
  v.width = in->Integer("intermediate_size", 1, kSizeMax);
  v.patch = in->Integer("patch_size", 1, 256);
  v.rope_theta = in->Number("rope_theta", 1.001, 1e12);
  v.downsample = in->Integer("downsample_ratio", 1, 16);
  v.tokens_max = in->Integer("max_image_tokens", 3, kSizeMax);
  v.pixels_min = in->Integer("min_pixels", 0, 1 << 30);
  if (in->Has("max_wh_ratio")) v.aspect_max = in->Number("max_wh_ratio", 1, 1e6);
  if (!in->ok()) return;
  // A head's dims are rotated as two halves of pairs, one by row and one by column.
  if (v.hidden % (4 * v.heads) != 0) {
    in->Fail("num_attention_heads", "does not divide hidden_size into multiples of 4");
  }
  c->vision = v;
}

void ReadQuantisation(ConfigFields* in, DeepseekV41Config* c) {
  in->Expect("quant_method", "fp8");
  in->ExpectIfPresent("activation_scheme", "dynamic");
  in->Expect("scale_fmt", "ue8m0");
  in->Expect("expert_dtype", "fp4");
  const std::vector<int64_t> block = in->Integers("weight_block_size", 1, kSizeMax, 2);
  if (!in->ok()) return;
  if (block.size() != 2) {
    in->Fail("weight_block_size", "must be two positive integers");
    return;
  }
  c->block_rows = static_cast<int>(block[0]);
  c->block_cols = static_cast<int>(block[1]);
}

}  // namespace

bool DeepseekV41Config::is_kv_source(int layer) const { return Contains(kv_sources, layer); }
bool DeepseekV41Config::is_index_source(int layer) const { return Contains(index_sources, layer); }

int DeepseekV41Config::kv_source(int layer) const {
  return ratios[static_cast<size_t>(layer)] == 0 ? -1 : Nearest(kv_sources, layer);
}
int DeepseekV41Config::index_source(int layer) const {
  return ratios[static_cast<size_t>(layer)] == 0 ? -1 : Nearest(index_sources, layer);
}

absl::StatusOr<DeepseekV41Config> ParseDeepseekV41Config(std::string_view json) {
  simdjson::dom::parser parser;
  WEIR_ASSIGN(const simdjson::dom::element root, ParseConfigObject(&parser, json));
  absl::Status status;
  ConfigFields in(root, "", &status);
  in.Expect("model_type", "deepseek_v41");
  DeepseekV41Config config;
  ConfigFields text = in.Object("text_config");
  ReadShape(&text, &config);
  ReadRouter(&text, &config);
  ReadStreams(&text, &config);
  WEIR_TRY(status);  // what follows is checked against layers and the vocabulary
  ReadDraft(&text, &config);
  ReadSelection(&text, &config);
  ReadEngram(&text, &config);
  config.yarn = ReadYarn(&text);
  if (in.Has("vision_config")) {
    ConfigFields vision = in.Object("vision_config");
    ReadVision(&vision, &config);
    const int image = in.Integer("image_token_id", 0, config.vocab - 1);
    if (config.vision) config.vision->image_token = image;
  }
  if (in.Has("quantization_config")) {
    ConfigFields quantisation = in.Object("quantization_config");
    ReadQuantisation(&quantisation, &config);
  }
  config.stop_tokens = in.Tokens("eos_token_id", config.vocab);
  WEIR_TRY(status);
  return config;
}

}  // namespace weir::engine
