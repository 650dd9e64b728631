// SPDX-License-Identifier: Apache-2.0
#include "base/net/channel_frame.h"

#include <algorithm>

#include "base/stdx/bytes.h"

namespace weir {
namespace {

// Reads across piece borders.
class Reader {
 public:
  explicit Reader(std::span<const std::string_view> pieces) : pieces_(pieces) {
    for (const std::string_view piece : pieces) left_ += piece.size();
  }
  size_t left() const { return left_; }
  // Exactly `size` bytes; size <= left().
  void Take(size_t size, std::string* out) {
    out->reserve(size);
    left_ -= size;
    while (size > 0) {
      const std::string_view rest = pieces_[piece_].substr(at_);
      const size_t part = std::min(size, rest.size());
      out->append(rest.substr(0, part));
      size -= part;
      at_ += part;
      if (at_ == pieces_[piece_].size()) {
        ++piece_;
        at_ = 0;
      }
    }
  }

 private:
  std::span<const std::string_view> pieces_;
  size_t piece_ = 0;
  size_t at_ = 0;
  size_t left_ = 0;
};

}  // namespace

void AppendFrameHead(FrameKind kind, size_t length, std::string* out) {
  out->push_back(static_cast<char>(kind));
  char bytes[4];
  StoreAs(bytes, static_cast<uint32_t>(length));
  out->append(bytes, sizeof(bytes));
}

bool ParseFrames(std::span<const std::string_view> pieces, size_t bytes_max,
                 std::vector<Frame>* out) {
  Reader reader(pieces);
  while (reader.left() > 0) {
    if (reader.left() < kFrameHeadBytes) return false;
    std::string head;
    reader.Take(kFrameHeadBytes, &head);
    const auto kind = static_cast<FrameKind>(head[0]);
    const auto length = LoadAs<uint32_t>(head.data() + 1);
    if (length > reader.left() || length > bytes_max) return false;
    Frame frame{kind, {}};
    reader.Take(length, &frame.bytes);
    if (kind == FrameKind::kHello && frame.bytes != kFrameHello) return false;
    const bool known = kind == FrameKind::kHello || kind == FrameKind::kMessage ||
                       kind == FrameKind::kHeartbeat;
    if (known) out->push_back(std::move(frame));
  }
  return true;
}

}  // namespace weir
