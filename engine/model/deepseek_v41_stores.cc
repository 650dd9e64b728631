// SPDX-License-Identifier: Apache-2.0
#include "engine/model/deepseek_v41_stores.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"

namespace weir::engine {
namespace {

using kernels::RowFormat;

// Collects the stores while numbering them.
class StoreList {
 public:
  int Block(std::string name, Part part, int ratio, RowFormat format, int width) {
    Store store{std::move(name), StoreKind::kBlock, part};
    store.ratio = static_cast<uint16_t>(ratio);
    return Add(std::move(store), format, width);
  }
  int Ring(std::string name, StoreKind kind, Part part, int layers, int rows, RowFormat format,
           int width) {
    if (layers == 0) return -1;
    Store store{std::move(name), kind, part};
    store.layers = static_cast<uint16_t>(layers);
    store.rows = static_cast<uint32_t>(rows);
    return Add(std::move(store), format, width);
  }
  void MoveTo(uint32_t block_tokens, V41Stores* out) {
    out->layout = CacheLayout(block_tokens, std::move(stores_));
    out->formats = std::move(formats_);
  }

 private:
  int Add(Store store, RowFormat format, int width) {
    store.row_bytes = static_cast<uint32_t>(kernels::RowBytes(format, static_cast<size_t>(width)));
    stores_.push_back(std::move(store));
    formats_.push_back(format);
    return static_cast<int>(stores_.size()) - 1;
  }

  std::vector<Store> stores_;
  std::vector<RowFormat> formats_;
};

}  // namespace

V41Stores MakeV41Stores(const DeepseekV41Config& c, uint32_t block_tokens, bool quantised) {
  const auto stored = [quantised](RowFormat format) {
    return quantised ? format : RowFormat::kF32;
  };
  // A step that is repeated or whose drafts are rejected must find what it read before.
  const int slack = 2 * (c.draft.block + 1);
  V41Stores out;
  out.encoder_layers = c.kv_sources.empty() ? 0 : c.kv_sources.back() + 1;
  StoreList list;
  int pairs = 0;
  for (const int source : c.kv_sources) {
    const Part part = source == c.kv_sources.back() ? Part::kDecoder : Part::kEncoder;
    const int ratio = c.ratios[static_cast<size_t>(source)];
    pairs += ratio == 2 ? 1 : 0;
    out.rows.push_back(list.Block(absl::StrCat("rows.", source), part, ratio,
                                  stored(RowFormat::kFp4Block16), c.head_dim));
    out.keys.push_back(list.Block(absl::StrCat("keys.", source), part, ratio,
                                  stored(RowFormat::kFp4Block32), c.index_dim));
  }
  const RowFormat window = stored(RowFormat::kFp8Block32);
  out.encoder_window = list.Ring("window.encoder", StoreKind::kWindow, Part::kEncoder,
                                 out.encoder_layers, c.window + slack, window, c.head_dim);
  out.decoder_window = list.Ring("window.decoder", StoreKind::kWindow, Part::kDecoder,
                                 c.layers - out.encoder_layers, c.window + slack, window,
                                 c.head_dim);
  out.pair_values = list.Ring("pair.values", StoreKind::kCarry, Part::kEncoder, pairs, slack,
                              RowFormat::kF32, c.head_dim);
  out.pair_gates = list.Ring("pair.gates", StoreKind::kCarry, Part::kEncoder, pairs, slack,
                             RowFormat::kF32, c.head_dim);
  // One I32 each, as wide as an F32.
  out.history = list.Ring("history", StoreKind::kCarry, Part::kEncoder, c.engram.empty() ? 0 : 1,
                          c.engram.orders + slack, RowFormat::kF32, 1);
  list.MoveTo(block_tokens, &out);
  return out;
}

}  // namespace weir::engine
