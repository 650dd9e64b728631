// SPDX-License-Identifier: Apache-2.0
//
// A kernel's problem with stores: ragged batches, and pages and rings that hold what lies before
// them and nothing elsewhere. For tests; on the test's thread.
#pragma once

#include <algorithm>
#include <numeric>
#include <vector>

#include "kernels/cuda/kernel_fixture_for_test.h"

namespace weir::kernels::cuda {

class StoreFixture : public KernelFixture {
 protected:
  // Sequences with rows at their ends, and a store of `row_bytes` a token that holds what lies
  // before.
  struct Batch {
    StepRows rows;
    PagedKv kv;
    std::vector<int32_t> position;
    std::vector<int32_t> sequence;
  };
  Batch MakeBatch(int sequences, int length_max, int rows_max, int page_tokens, int64_t row_bytes,
                  RowFormat format) {
    Batch batch;
    const int stride = (length_max + page_tokens - 1) / page_tokens;
    std::vector<int32_t> table(static_cast<size_t>(sequences * stride));
    std::iota(table.begin(), table.end(), 0);
    for (size_t i = table.size(); i > 1; --i) std::swap(table[i - 1], table[random_.Next() % i]);
    std::vector<int32_t> floor;
    for (int s = 0; s < sequences; ++s) {
      const int length = Pick(1, length_max);
      const int count = std::min(length, Pick(1, rows_max));
      for (int i = length - count; i < length; ++i) {
        batch.position.push_back(i);
        batch.sequence.push_back(s);
        floor.push_back(0);
      }
    }
    batch.rows.count = static_cast<int>(batch.position.size());
    batch.rows.position = Put(batch.position);
    batch.rows.sequence = Put(batch.sequence);
    batch.rows.write_floor = Put(floor);
    batch.kv.layer_offset = 256;
    batch.kv.row_bytes = row_bytes;
    batch.kv.page_tokens = page_tokens;
    batch.kv.page_bytes = 256 + row_bytes * page_tokens;
    batch.kv.format = format;
    batch.kv.table = Put(table);
    batch.kv.table_stride = stride;
    batch.kv.base = Room(batch.kv.page_bytes * sequences * stride, DType::kU8).address;
    return batch;
  }
  // Calls f(sequence, position) for every position that exists.
  template <class F>
  void ForEachPosition(const Batch& batch, F&& f) {
    for (size_t r = 0; r < batch.position.size(); ++r) {
      const bool last =
          r + 1 == batch.position.size() || batch.sequence[r + 1] != batch.sequence[r];
      for (int p = 0; last && p <= batch.position[r]; ++p) f(batch.sequence[r], p);
    }
  }
  // Random rows where a position exists, and nothing elsewhere.
  void FillBf16(const Batch& batch, int width) {
    ForEachPosition(batch, [&](int32_t sequence, int p) {
      PutRow(RowFormat::kBf16, width, ref::KvRow(batch.kv, sequence, p));
    });
  }
  // Likewise in FP8, in a store of its own, and the same numbers in the batch's.
  PagedKv FillFp8(const Batch& batch, int width) {
    PagedKv narrow = batch.kv;
    narrow.format = RowFormat::kFp8Block32;
    const size_t bytes = RowBytes(narrow.format, static_cast<size_t>(width));
    narrow.row_bytes = static_cast<int64_t>(bytes + 15) / 16 * 16;
    narrow.page_bytes = 256 + narrow.row_bytes * narrow.page_tokens;
    narrow.base = Room(narrow.page_bytes * batch.kv.table.elements(), DType::kU8).address;
    std::vector<std::byte> row(static_cast<size_t>(width) * 2);
    std::vector<float> values(static_cast<size_t>(width));
    ForEachPosition(batch, [&](int32_t sequence, int p) {
      const DeviceAddress from = ref::KvRow(narrow, sequence, p);
      PutRow(narrow.format, width, from);
      ref::DecodeRow(narrow.format, reinterpret_cast<const std::byte*>(from), width, values.data());
      ref::EncodeRow(RowFormat::kBf16, values.data(), width, row.data());
      memory_->CopyIn(reinterpret_cast<void*>(ref::KvRow(batch.kv, sequence, p)), row.data(),
                      row.size());
    });
    return narrow;
  }

  RingKv MakeRing(int sequences, int ring_rows, int64_t row_bytes, RowFormat format) {
    RingKv ring;
    ring.layer_offset = 64;
    ring.row_bytes = row_bytes;
    ring.ring_rows = ring_rows;
    ring.state_bytes = 64 + row_bytes * ring_rows;
    ring.format = format;
    std::vector<int32_t> state(static_cast<size_t>(sequences));
    std::iota(state.rbegin(), state.rend(), 0);
    ring.state = Put(state);
    ring.base = Room(ring.state_bytes * sequences, DType::kU8).address;
    return ring;
  }
  void PutRow(RowFormat format, int width, DeviceAddress at) {
    std::vector<std::byte> bytes(RowBytes(format, static_cast<size_t>(width)));
    ref::EncodeRow(format, Uniform(width).data(), width, bytes.data());
    memory_->CopyIn(reinterpret_cast<void*>(at), bytes.data(), bytes.size());
  }
  // The step's own rows where they are fresh, the window before them in the ring.
  void FillWindow(Batch* batch, const SparseAttentionArgs& args) {
    std::vector<int32_t> fresh_from;
    std::vector<int32_t> visible_from;
    for (int r = 0; r < batch->rows.count; ++r) {
      const auto i = static_cast<size_t>(r);
      const bool first = r == 0 || batch->sequence[i] != batch->sequence[i - 1];
      fresh_from.push_back(first ? batch->position[i] : fresh_from.back());
      visible_from.push_back(Pick(0, 1) == 0 ? 0 : Pick(0, batch->position[i]));
      PutRow(args.ring.format, 512, args.fresh.address + i * 528);
      if (!first) continue;
      for (int p = std::max(0, batch->position[i] - args.window); p < batch->position[i]; ++p) {
        PutRow(args.ring.format, 512, ref::RingRow(args.ring, batch->sequence[i], p));
      }
    }
    batch->rows.fresh_from = Put(fresh_from);
    batch->rows.visible_from = Put(visible_from);
  }
  // A key for every position that can be seen, some of them twice, so that there are ties.
  void FillKeys(const Batch& batch) {
    for (size_t r = 0; r < batch.position.size(); ++r) {
      for (int g = 0; g < (batch.position[r] + 1) / batch.kv.ratio; ++g) {
        const DeviceAddress at = ref::KvRow(batch.kv, batch.sequence[r], g * batch.kv.ratio);
        PutRow(batch.kv.format, 128, at);
        if (g == 0 || Pick(0, 9) != 0) continue;
        const DeviceAddress before =
            ref::KvRow(batch.kv, batch.sequence[r], (g - 1) * batch.kv.ratio);
        memory_->CopyIn(reinterpret_cast<void*>(at), reinterpret_cast<const void*>(before),
                        RowBytes(batch.kv.format, 128));
      }
    }
  }
  // A list of `select` places for each row, and the entries that stand in it.
  Tensor FillEntries(const Batch& batch, int select) {
    std::vector<int32_t> selected;
    for (size_t r = 0; r < batch.position.size(); ++r) {
      const int visible = (batch.position[r] + 1) / batch.kv.ratio;
      int listed = 0;
      for (int g = 0; g < visible && listed < select; ++g) {
        if (Pick(0, 2) != 0) continue;
        selected.push_back(g);
        ++listed;
        PutRow(batch.kv.format, 512, ref::KvRow(batch.kv, batch.sequence[r], g * batch.kv.ratio));
      }
      for (; listed < select; ++listed) selected.push_back(-1);
    }
    return Put(selected);
  }
};

}  // namespace weir::kernels::cuda
