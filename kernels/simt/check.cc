// SPDX-License-Identifier: Apache-2.0
//
// The rules of memory: every access of a kernel is held against what its shadow knows.
#include "base/stdx/check.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "base/stdx/planted.h"
#include "kernels/simt/machine.h"

namespace weir::kernels::simt {
namespace {

struct Verdict {
  bool bad = false;
  FindingKind kind{};
  const char* text = "";
  Stamp other = 0;
};

bool IsAtomic(Access access) { return access == Access::kAtomic || access == Access::kAtomicStore; }
bool IsCopy(Access access) {
  return access == Access::kCopyRead || access == Access::kAsyncCopyRead;
}
bool IsAsyncRead(Access access) {
  return access == Access::kAsyncRead || access == Access::kAsyncCopyRead;
}
bool IsRead(Access access) {
  return access == Access::kRead || access == Access::kAtomicLoad || IsCopy(access) ||
         IsAsyncRead(access);
}

bool Ordered(Stamp stamp, const Fiber& fiber) {
  if (stamp == 0 || LaunchOf(stamp) != g_machine->launch) return true;
  const Clocks& clocks = fiber.block->clocks;
  if (BlockOf(stamp) == fiber.block->number) {
    return clocks.Ordered(ActorOf(stamp), ClockOf(stamp), fiber.thread);
  }
  return clocks.OrderedForeign(BlockOf(stamp), ActorOf(stamp), ClockOf(stamp), fiber.thread);
}

// By the writer before it told anybody, or by the reader after it was told.
bool Fenced(const Cell& cell, uint8_t flags, const Fiber& fiber) {
  const Stamp stamp = cell.write;
  const Block& block = *fiber.block;
  if ((flags & kPlain) == 0 || stamp == 0 || LaunchOf(stamp) != g_machine->launch) return true;
  if (BlockOf(stamp) != block.number) return true;
  const auto actor = static_cast<size_t>(ActorOf(stamp));
  if (actor < block.fibers.size() && ClockOf(stamp) < block.fibers[actor].proxy_fence) return true;
  return actor < fiber.fenced.size() && ClockOf(stamp) <= fiber.fenced[actor];
}

Verdict JudgeRead(const Cell& cell, uint8_t flags, Access access, const Fiber& fiber) {
  if ((flags & kLanding) != 0) {
    return {true, FindingKind::kPending, "reads where a copy has not landed", cell.write};
  }
  if ((flags & kWritten) == 0 && !IsCopy(access)) {
    return {true, FindingKind::kUninitialised, "reads bytes that nobody wrote", 0};
  }
  const bool both_atomic = access == Access::kAtomicLoad && (flags & kAtomic) != 0;
  if (!both_atomic && !Ordered(cell.write, fiber)) {
    return {true, FindingKind::kRace, "reads what is written at the same time", cell.write};
  }
  if (IsAsyncRead(access) && !Fenced(cell, flags, fiber)) {
    return {true, FindingKind::kProxyFence, "asynchronous read of a plain write", cell.write};
  }
  return {};
}

Verdict JudgeWrite(const Cell& cell, uint8_t flags, Access access, const Fiber& fiber) {
  if ((flags & (kLanding | kLeaving)) != 0) {
    return {true, FindingKind::kPending, "writes where a copy is in flight", cell.write};
  }
  const bool both_atomic = IsAtomic(access) && (flags & kAtomic) != 0;
  if (!both_atomic && !Ordered(cell.write, fiber)) {
    return {true, FindingKind::kRace, "writes what is written at the same time", cell.write};
  }
  for (const Stamp read : cell.read) {
    if (!Ordered(read, fiber)) {
      return {true, FindingKind::kRace, "writes what is read at the same time", read};
    }
  }
  if (access == Access::kAtomic && (flags & kWritten) == 0) {
    return {true, FindingKind::kUninitialised, "updates bytes that nobody wrote", 0};
  }
  return {};
}

void Remember(Cell* cell, uint8_t* flags, Access access, Stamp stamp, const Fiber& fiber) {
  if (!IsRead(access)) {
    *cell = {stamp, {0, 0}};
    const uint8_t how = IsAtomic(access)                ? kAtomic | kPlain
                        : access == Access::kAsyncWrite ? 0
                                                        : kPlain;
    *flags = static_cast<uint8_t>(kExists | kWritten | how);
  } else if (access == Access::kAtomicLoad) {
    return;  // an atomic write may meet it, and a plain one is judged when it is read
  } else if (cell->read[0] == 0 || Ordered(cell->read[0], fiber)) {
    cell->read[0] = stamp;
  } else {
    cell->read[1] = stamp;
  }
}

std::string Describe(const Verdict& verdict, const Fiber& fiber, size_t offset, bool shared) {
  std::string text = verdict.text;
  text += ", thread " + std::to_string(fiber.thread) + " of block " +
          std::to_string(fiber.block->number);
  if (verdict.other != 0 && LaunchOf(verdict.other) == g_machine->launch) {
    const int actor = ActorOf(verdict.other);
    text += actor >= fiber.block->threads ? ", against a copy"
                                          : ", against thread " + std::to_string(actor);
    text += " of block " + std::to_string(BlockOf(verdict.other));
  }
  return text + ", " + (shared ? "shared" : "global") + " byte " + std::to_string(offset);
}

void Inspect(Fiber* fiber, Shadow* shadow, size_t offset, size_t bytes, Access access,
             const Origin& origin, bool shared) {
  Report& report = g_machine->report;
  const Clocks& clocks = fiber->block->clocks;
  const uint32_t now = clocks.now(fiber->thread);
  WEIR_CHECK(now <= kClockMax);
  const Stamp stamp = MakeStamp(g_machine->launch, fiber->block->number, fiber->thread, now);
  Cell* cell = shadow->cells() + offset;
  uint8_t* flags = shadow->flags() + offset;
  const size_t inside = std::min(bytes, shadow->bytes() - offset);
  Cell last_cell;
  int last_flags = -1;
  for (size_t i = 0; i < inside; ++i) {
    // Neighbours mostly share their history: judge the first, copy the outcome.
    if (last_flags == flags[i] && std::memcmp(&last_cell, &cell[i], sizeof(Cell)) == 0) {
      cell[i] = cell[i - 1];
      flags[i] = flags[i - 1];
      continue;
    }
    last_cell = cell[i];
    last_flags = flags[i];
    if ((flags[i] & kExists) == 0) {
      return report.Add(
          FindingKind::kOutOfBounds, origin,
          Describe({true, {}, "touches what does not exist", 0}, *fiber, offset + i, shared));
    }
    const Verdict verdict = IsRead(access) ? JudgeRead(cell[i], flags[i], access, *fiber)
                                           : JudgeWrite(cell[i], flags[i], access, *fiber);
    if (verdict.bad)
      report.Add(verdict.kind, origin, Describe(verdict, *fiber, offset + i, shared));
    Remember(&cell[i], &flags[i], access, stamp, *fiber);
  }
}

Shadow* ShadowOf(Block* block, const void* p) {
  if (InWindow(*block, p)) return block->shadow.get();
  DeviceMemory* memory = g_machine->options.memory;
  return memory != nullptr && memory->shadow().Contains(p) ? &memory->shadow() : nullptr;
}

}  // namespace

void CheckAccess(Fiber* fiber, const void* p, size_t bytes, Access access, const Origin& origin) {
  if (!g_machine->options.check || bytes == 0 || IsPlanted(Planted::kBlindChecker)) return;
  Shadow* shadow = ShadowOf(fiber->block, p);
  if (shadow == nullptr) return;
  Inspect(fiber, shadow, shadow->OffsetOf(p), bytes, access, origin, InWindow(*fiber->block, p));
}

void MarkLanded(Block* block, const Piece& piece, int actor, bool plain) {
  if (!g_machine->options.check) return;
  Shadow* shadow = ShadowOf(block, piece.to);
  if (shadow == nullptr) return;
  const size_t offset = shadow->OffsetOf(piece.to);
  const Stamp stamp = MakeStamp(g_machine->launch, block->number, actor, block->clocks.now(actor));
  Shadow* source = piece.from == nullptr ? nullptr : ShadowOf(block, piece.from);
  const uint8_t* from =
      source == nullptr ? nullptr : source->flags() + source->OffsetOf(piece.from);
  const int base = kExists | (plain ? kPlain : 0);
  for (size_t i = 0; i < piece.bytes; ++i) {
    uint8_t& flags = shadow->flags()[offset + i];
    if ((flags & kExists) == 0) return;
    flags = static_cast<uint8_t>(base | (from == nullptr ? kWritten : from[i] & kWritten));
    shadow->cells()[offset + i] = {stamp, {0, 0}};
  }
}

void MarkFlag(Block* block, const void* p, size_t bytes, ByteFlag flag, bool on) {
  if (!g_machine->options.check) return;
  Shadow* shadow = ShadowOf(block, p);
  if (shadow == nullptr) return;
  uint8_t* flags = shadow->flags() + shadow->OffsetOf(p);
  for (size_t i = 0; i < bytes; ++i) {
    if ((flags[i] & kExists) == 0) return;
    flags[i] = static_cast<uint8_t>(on ? flags[i] | flag : flags[i] & ~flag);
  }
}

uint32_t WindowOffset(const Block& block, const void* p) {
  return static_cast<uint32_t>(static_cast<const unsigned char*>(p) - block.window);
}

uint32_t SharedAddress(const void* p) { return WindowOffset(*Self()->block, p); }

}  // namespace weir::kernels::simt
