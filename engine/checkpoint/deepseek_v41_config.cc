// SPDX-License-Identifier: Apache-2.0
#include "engine/checkpoint/deepseek_v41_config.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "engine/checkpoint/config_fields.h"
#include "engine/checkpoint/deepseek_v4_fields.h"

namespace weir::engine {
namespace {

constexpr int64_t kRowsMax = int64_t{1} << 40;

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
  c->kv_sources = in->Ascending("kv_source_layer_ids", 0, last, kLayersMax);
  c->index_sources = in->Ascending("index_source_layer_ids", 0, last, kLayersMax);
  c->candidate_source = in->IntegerOr("candidate_source_layer_id", -1, last, -1);
  if (c->candidate_source >= 0) {
    c->candidate_blocks = in->Integer("candidate_topk_blocks", 1, kSizeMax);
    c->candidate_block = in->Integer("candidate_block_size", 1, kSizeMax);
  }
  if (!in->ok()) return;
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
  e.head_dim = in->Integer("engram_head_dim", 1, kHeadDimMax);
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
  v.heads = in->Integer("num_attention_heads", 1, kHeadsMax);
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
  text.Expect("model_type", "deepseek_v41_text");
  ReadV4Shape(&text, &config);
  WEIR_TRY(status);  // what follows is checked against layers and the vocabulary
  ReadDraft(&text, &config);
  ReadV4Ratios(&text, config.draft.stages, /*ratio_max=*/2, &config);
  ReadSelection(&text, &config);
  ReadEngram(&text, &config);
  if (in.Has("vision_config")) {
    ConfigFields vision = in.Object("vision_config");
    ReadVision(&vision, &config);
    const int image = in.Integer("image_token_id", 0, config.vocab - 1);
    if (config.vision) config.vision->image_token = image;
  }
  if (in.Has("quantization_config")) {
    ConfigFields quantisation = in.Object("quantization_config");
    quantisation.Expect("expert_dtype", "fp4");
    ReadV4Quantisation(&quantisation, &config);
  }
  config.stop_tokens = in.Tokens("eos_token_id", config.vocab);
  WEIR_TRY(status);
  return config;
}

}  // namespace weir::engine
