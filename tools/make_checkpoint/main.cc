// SPDX-License-Identifier: Apache-2.0
//
// weir_make_checkpoint --family v41 --out DIR --tokenizer FILE writes a small
// checkpoint from a seed; with --config FILE --out DIR it has the shape of that config.json. Exit 0
// when it is written, 2 with one line of reason otherwise.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <string>

#include "tools/make_checkpoint/random_checkpoint.h"
#include "tools/make_checkpoint/tiny_v3.h"
#include "tools/make_checkpoint/tiny_v41.h"

int main(int argc, char** argv) {
  weir::tools::TinyV3Options v3;
  weir::tools::TinyV41Options v41;
  std::string family = "v41";
  CLI::App app("Writes a small DeepSeek checkpoint with random weights from a seed.");
  app.add_option("--family", family, "v3 or v41")
      ->check(CLI::IsMember({"v3", "v41"}))
      ->capture_default_str();
  app.add_option("--out", v3.out, "directory to write")->required();
  std::string config_file;
  CLI::Option* config =
      app.add_option("--config", config_file, "config.json of any V3 or V4.1 shape; no tokenizer");
  app.add_option("--tokenizer", v3.tokenizer, "tokenizer.json to copy; sizes the vocabulary")
      ->excludes(config);
  app.add_option("--seed", v3.seed, "which random weights")->capture_default_str();
  app.add_option("--hidden", v3.hidden, "hidden_size")->capture_default_str();
  app.add_option("--layers", v3.layers, "v3: num_hidden_layers")->capture_default_str();
  app.add_option("--experts", v3.experts, "n_routed_experts")->capture_default_str();
  const CLI::Option* positions =
      app.add_option("--positions", v3.positions_max, "max_position_embeddings");
  CLI11_PARSE(app, argc, argv);
  v41.out = v3.out;
  v41.tokenizer = v3.tokenizer;
  v41.seed = v3.seed;
  v41.hidden = v3.hidden;
  v41.experts = v3.experts;
  if (positions->count() > 0) v41.positions_max = v3.positions_max;
  absl::Status status;
  if (config->count() > 0) {
    status = weir::tools::MakeRandomCheckpoint(config_file, v3.out, v3.seed);
  } else {
    status = family == "v3" ? weir::tools::MakeTinyV3(v3) : weir::tools::MakeTinyV41(v41);
  }
  if (!status.ok()) {
    std::fprintf(stderr, "weir_make_checkpoint: %s\n", std::string(status.message()).c_str());
    return 2;
  }
  std::printf("wrote %s\n", v3.out.c_str());
  return 0;
}
