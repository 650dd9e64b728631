// SPDX-License-Identifier: Apache-2.0
//
// Records for tests whose every byte follows from a seed, and a store driven to the end of each
// operation. One thread. A wrong byte is reported by HasBytesOf; nothing else can go wrong.
#pragma once

#include <algorithm>
#include <cstring>
#include <vector>

#include "base/stdx/bytes.h"
#include "base/stdx/random.h"
#include "kvstore/blob/aligned_buffer.h"
#include "kvstore/blob/blob_store.h"

namespace weir::kv {

inline BlockKey TestKey(uint64_t seed) {
  BlockKey key;
  for (size_t i = 0; i < 4; ++i) StoreAs(key.bytes.data() + i * 8, RandomBits(seed, 77, i));
  return key;
}

// Two sections whose parts are not whole pages.
inline RecordShape TestShape(uint32_t blocks) {
  RecordShape shape;
  shape.blocks = blocks;
  shape.sections = 2;
  shape.section[0] = {1, 1000};
  shape.section[1] = {2, 2500};
  return shape;
}

struct TestRecord {
  RecordHeader header;
  AlignedBuffer payload;
};

inline void FillBlock(uint64_t seed, uint32_t section, uint32_t block, std::span<std::byte> out) {
  for (size_t i = 0; i < out.size(); i += 8) {
    const uint64_t word = RandomBits(seed, section * 64 + block, i / 8);
    std::memcpy(out.data() + i, &word, std::min<size_t>(8, out.size() - i));
  }
}

inline TestRecord MakeTestRecord(uint64_t seed, const RecordShape& shape, uint8_t domain = 0) {
  TestRecord record;
  record.header.shape = shape;
  record.header.domain[0] = domain;
  record.header.parent = TestKey(seed * 1000 + 999);
  for (uint32_t j = 0; j < shape.blocks; ++j) record.header.keys[j] = TestKey(seed * 1000 + j);
  record.payload = AlignedBuffer(shape.PayloadBytes());
  for (uint32_t i = 0; i < shape.sections; ++i) {
    for (uint32_t j = 0; j < shape.blocks; ++j) {
      FillBlock(seed, i, j,
                record.payload.span().subspan(shape.BlockAt(i, j), shape.section[i].block_bytes));
    }
  }
  SealPayload(record.payload.span(), &record.header);
  return record;
}

inline bool HasBytesOf(uint64_t seed, const BlobRead& read) {
  const ReadPlan plan = PlanRead(read.shape, read.first, read.count, read.sections);
  for (uint32_t i = 0; i < plan.part_count; ++i) {
    const uint32_t section = plan.parts[i].section;
    std::vector<std::byte> expected(read.shape.section[section].block_bytes);
    for (uint32_t j = 0; j < read.count; ++j) {
      FillBlock(seed, section, read.first + j, expected);
      const std::byte* got = read.into.data() + plan.parts[i].view_at + j * expected.size();
      if (std::memcmp(got, expected.data(), expected.size()) != 0) return false;
    }
  }
  return true;
}

// Polls until the outcome of `id` is there; events of others go to *others.
inline BlobEvent Await(BlobStore* store, BlobId id, std::vector<BlobEvent>* others) {
  for (int i = 0; i < 100000; ++i) {
    std::vector<BlobEvent> events;
    store->Poll(IoWait::kForOne, &events);
    BlobEvent mine;
    bool found = false;
    for (BlobEvent& event : events) {
      if (event.id == id && id != 0) {
        mine = std::move(event);
        found = true;
      } else {
        others->push_back(std::move(event));
      }
    }
    if (found) return mine;
  }
  return {.status = absl::InternalError("an operation did not end")};
}

}  // namespace weir::kv
