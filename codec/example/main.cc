// SPDX-License-Identifier: Apache-2.0
//
// codec/ used as a library: a chat request becomes the ids that a model would be given, and the ids
// of an answer become what its client reads. The answer is played back from the command line, where
// a model would be.
//   example TOKENIZER.json REQUEST.json ANSWER.txt
#include <cstdio>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>

#include "codec/dialect/chat.h"
#include "codec/prompt/prompt.h"
#include "codec/stream/response.h"

namespace {

std::string ReadFile(const char* path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

int Fail(const absl::Status& status) {
  std::fprintf(stderr, "%s\n", status.ToString().c_str());
  return 1;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace weir;
  if (argc != 4) return Fail(absl::InvalidArgumentError("three files are needed"));

  const auto tokenizer = codec::Tokenizer::FromFile(argv[1]);
  if (!tokenizer.ok()) return Fail(tokenizer.status());
  const auto renderer = codec::Renderer::Create(*tokenizer, codec::TemplateKind::kV41,
                                                (*tokenizer)->vocab().size());
  if (!renderer.ok()) return Fail(renderer.status());

  const auto request = codec::ParseChat(ReadFile(argv[2]), codec::RequestLimits{});
  if (!request.ok()) return Fail(request.status());
  const auto prompt = (*renderer)->Render(*request, /*ids_max=*/1 << 20);
  if (!prompt.ok()) return Fail(prompt.status());
  std::printf("a prompt of %zu tokens\n", prompt->ids.size());

  codec::ResponseHead head;
  head.id = "id";
  head.model = request->model;
  const auto response = codec::Response::Create(*request, *prompt, *tokenizer, std::move(head));
  std::string out;
  response->Start(&out);
  for (const TokenId id : (*tokenizer)->EncodeTrusted(ReadFile(argv[3]))) {
    if (response->Push(0, {&id, 1}, {}, &out)) break;  // a stop string
  }
  response->Finish(0, codec::EngineFinish::kStop, &out);
  std::printf("%s\n", out.c_str());
  return 0;
}
