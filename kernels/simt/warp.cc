// SPDX-License-Identifier: Apache-2.0
//
// Collectives of a warp: lanes meet by mask, the last to arrive acts for all of them. Shuffles,
// votes and matrix instructions order no memory; only __syncwarp does.
#include <algorithm>
#include <string>

#include "kernels/simt/machine.h"

namespace weir::kernels::simt {
namespace {

template <class F>
void ForEachLane(const Meeting& meeting, F&& f) {
  for (uint32_t rest = meeting.mask; rest != 0; rest &= rest - 1) {
    f(static_cast<size_t>(__builtin_ctz(rest)));
  }
}

VoteLane& Vote(const Meeting& meeting, size_t lane) {
  return *static_cast<VoteLane*>(meeting.argument[lane]);
}

void Shuffle(const Meeting& meeting) {
  ForEachLane(meeting, [&](size_t lane) {
    VoteLane& mine = Vote(meeting, lane);
    const auto source = static_cast<size_t>(mine.source & 31);
    if ((meeting.mask >> source & 1) == 0) {
      g_machine->report.Add(FindingKind::kDivergent, {"shuffle", meeting.at},
                            "reads lane " + std::to_string(source) + ", which takes no part");
      mine.result = mine.value;
      return;
    }
    mine.result = Vote(meeting, source).value;
  });
}

void Ballot(const Meeting& meeting) {
  uint64_t votes = 0;
  ForEachLane(meeting, [&](size_t lane) { votes |= (Vote(meeting, lane).value & 1) << lane; });
  ForEachLane(meeting, [&](size_t lane) { Vote(meeting, lane).result = votes; });
}

void Match(const Meeting& meeting) {
  ForEachLane(meeting, [&](size_t lane) {
    uint64_t same = 0;
    ForEachLane(meeting, [&](size_t other) {
      if (Vote(meeting, other).value == Vote(meeting, lane).value) same |= uint64_t{1} << other;
    });
    Vote(meeting, lane).result = same;
  });
}

void Reduce(const Meeting& meeting) {
  const auto first = static_cast<size_t>(__builtin_ctz(meeting.mask));
  uint64_t result = Vote(meeting, first).value;
  ForEachLane(meeting, [&](size_t lane) {
    if (lane == first) return;
    const uint64_t value = Vote(meeting, lane).value;
    result = meeting.what == Collective::kReduceAdd   ? (result + value) & 0xffffffff
             : meeting.what == Collective::kReduceMin ? std::min(result, value)
                                                      : std::max(result, value);
  });
  ForEachLane(meeting, [&](size_t lane) { Vote(meeting, lane).result = result; });
}

void SyncWarp(Fiber* self, const Meeting& meeting) {
  if (!g_machine->options.check) return;
  std::vector<int> members;
  ForEachLane(meeting,
              [&](size_t lane) { members.push_back(self->warp * 32 + static_cast<int>(lane)); });
  self->block->clocks.Sync(members);
}

Instruction KindOf(Collective what) {
  switch (what) {
    case Collective::kSyncWarp:
      return Instruction::kSyncWarp;
    case Collective::kShuffle:
      return Instruction::kShuffle;
    case Collective::kLoadMatrix:
      return Instruction::kLoadMatrix;
    case Collective::kStoreMatrix:
      return Instruction::kStoreMatrix;
    case Collective::kMma:
      return Instruction::kMma;
    case Collective::kWgmma:
    case Collective::kWgmmaFence:
    case Collective::kWgmmaCommit:
    case Collective::kWgmmaWait:
      return Instruction::kWgmma;
    default:
      return Instruction::kVote;
  }
}

void Act(Fiber* self, const Meeting& meeting) {
  if (meeting.what != Collective::kWgmmaFence && meeting.what != Collective::kWgmmaCommit &&
      meeting.what != Collective::kWgmmaWait) {
    ++g_machine->report.counters.of(KindOf(meeting.what));
  }
  switch (meeting.what) {
    case Collective::kSyncWarp:
      return SyncWarp(self, meeting);
    case Collective::kShuffle:
      return Shuffle(meeting);
    case Collective::kBallot:
      return Ballot(meeting);
    case Collective::kMatch:
      return Match(meeting);
    case Collective::kReduceAdd:
    case Collective::kReduceMin:
    case Collective::kReduceMax:
      return Reduce(meeting);
    case Collective::kLoadMatrix:
      return LoadMatrixTiles(self, meeting);
    case Collective::kStoreMatrix:
      return StoreMatrixTiles(self, meeting);
    case Collective::kMma:
      return MultiplyTiles(meeting);
    case Collective::kWgmmaFence:
      self->block->warps[static_cast<size_t>(self->warp)].wgmma_fenced = true;
      return;
    case Collective::kWgmma:
      return WgmmaIssue(self, meeting);
    case Collective::kWgmmaCommit:
      return WgmmaCommit(self);
    case Collective::kWgmmaWait:
      return WgmmaWait(self, meeting);
  }
}

bool Skipped(Collective what, Site at) {
  return (what == Collective::kSyncWarp && g_machine->Sabotaged(Sabotage::kSkipSyncWarp, at)) ||
         (what == Collective::kWgmmaFence && g_machine->Sabotaged(Sabotage::kSkipWgmmaFence, at)) ||
         (what == Collective::kWgmmaWait && g_machine->Sabotaged(Sabotage::kSkipWgmmaWait, at));
}

}  // namespace

void Meet(Collective what, uint32_t mask, void* lane, Site at) {
  Fiber* self = Self();
  Block* block = self->block;
  Report& report = g_machine->report;
  if (Skipped(what, at)) return;
  const int lanes = std::min(32, block->threads - self->warp * 32);
  if (lanes < 32) mask &= (1u << lanes) - 1;
  if ((mask >> self->lane & 1) == 0) {
    return report.Add(FindingKind::kDivergent, {"warp collective", at},
                      "a lane calls it whose mask leaves it out");
  }
  Meeting& meeting = block->warps[static_cast<size_t>(self->warp)]
                         .meetings[static_cast<size_t>(__builtin_ctz(mask))];
  if (meeting.arrived == 0) {
    meeting.what = what;
    meeting.mask = mask;
    meeting.at = at;
  } else if (meeting.what != what || meeting.mask != mask || !(meeting.at == at)) {
    report.Add(FindingKind::kDivergent, {"warp collective", at},
               "other lanes of the warp are at " + meeting.at.Text());
    if (meeting.what != what) return;
  }
  meeting.argument[static_cast<size_t>(self->lane)] = lane;
  meeting.arrived |= 1u << self->lane;
  if (meeting.arrived != meeting.mask) return g_machine->Park("a warp collective", at);
  Act(self, meeting);
  meeting.arrived = 0;
  for (uint32_t rest = meeting.mask & ~(1u << self->lane); rest != 0; rest &= rest - 1) {
    g_machine->Ready(&block->fibers[static_cast<size_t>(self->warp * 32 + __builtin_ctz(rest))]);
  }
}

}  // namespace weir::kernels::simt
