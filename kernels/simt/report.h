// SPDX-License-Identifier: Apache-2.0
//
// What one emulated launch has to say: findings, each once per place in the source, and counters.
// Filled by the thread that launches; plain values afterwards. More than kFindingsMax findings are
// dropped, since the first ones tell what is wrong.
#pragma once

#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "kernels/simt/site.h"

namespace weir::kernels::simt {

enum class FindingKind : uint8_t {
  kRace = 0,           // two accesses, one a write, that nothing orders
  kUninitialised = 1,  // a read of bytes that nobody wrote
  kPending = 2,        // a touch of bytes that an asynchronous copy still uses
  kOutOfBounds = 3,
  kMisaligned = 4,
  kDivergent = 5,   // lanes or warps that disagree on a collective
  kDeadlock = 6,    // nothing can run any more
  kProxyFence = 7,  // an asynchronous read of plain writes without fence.proxy.async
  kMisuse = 8,      // an operation outside its rules: over-arrival, missing wgmma fence, ...
};

const char* FindingName(FindingKind kind);

// Where something happened: a line of the kernel, or the address of an instruction of it.
struct Origin {
  const char* what = "";
  Site site;
  const void* pc = nullptr;
};

struct Finding {
  FindingKind kind = FindingKind::kMisuse;
  std::string text;
};

enum class Instruction : uint8_t {
  kShuffle = 0,
  kVote = 1,
  kSyncWarp = 2,
  kBarrier = 3,
  kMbarrier = 4,
  kLoadMatrix = 5,
  kStoreMatrix = 6,
  kMma = 7,
  kWgmma = 8,
  kCpAsync = 9,
  kBulk = 10,
  kAtomic = 11,
};
constexpr int kInstructionKinds = 12;

// Loads and stores are counted only with Options::count. A transaction of shared memory is one pass
// over its 32 banks, one of global memory a sector of 32 bytes.
struct Counters {
  std::array<uint64_t, kInstructionKinds> instructions{};  // by warp; copies and atomics by thread
  uint64_t switches = 0;
  uint64_t shared_transactions = 0;
  uint64_t shared_ideal = 0;  // the same without bank conflicts
  uint64_t global_sectors = 0;
  uint64_t global_ideal = 0;  // the same if every warp's bytes lay side by side
  uint64_t global_read_bytes = 0;
  uint64_t global_written_bytes = 0;

  uint64_t& of(Instruction kind) { return instructions[static_cast<size_t>(kind)]; }
  uint64_t of(Instruction kind) const { return instructions[static_cast<size_t>(kind)]; }
  double BankConflictFactor() const;
  double UncoalescedShare() const;
};

constexpr size_t kFindingsMax = 50;
constexpr int kSabotages = 16;  // kinds of mistakes, see launch.h; none is one of them

class Report {
 public:
  std::vector<Finding> findings;
  Counters counters;
  std::array<int, kSabotages> sabotage_places{};  // by kind, that a launch with a sabotage met

  bool clean() const { return findings.empty(); }
  bool Has(FindingKind kind) const;
  std::string Text() const;  // a line each

  // Adds a finding unless this place has one of its kind already.
  void Add(FindingKind kind, const Origin& origin, const std::string& detail);
  // Merges another launch's report into this one.
  void Absorb(const Report& other);

 private:
  std::set<std::tuple<FindingKind, const void*, const char*, int>> seen_;
};

}  // namespace weir::kernels::simt
