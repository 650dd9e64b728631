// SPDX-License-Identifier: Apache-2.0
#include "weir/chat.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <iostream>
#include <string>

#include <nlohmann/json.hpp>

#include "base/net/http_client.h"
#include "base/stdx/bytes.h"
#include "weir/commands.h"

namespace weir {
namespace {

using nlohmann::json;

std::atomic<bool> g_cancel{false};  // set by the signal handler, read by the client's poll

void OnInterrupt(int) { g_cancel.store(true, std::memory_order_relaxed); }

// Writes one turn to the terminal: reasoning apart from the answer, tool calls as lines.
class Printer {
 public:
  explicit Printer(bool color) : color_(color) {}

  void Reasoning(const std::string& text) {
    if (text.empty()) return;
    Switch(Mode::kReasoning);
    Put(text);
  }
  void Content(const std::string& text) {
    if (text.empty()) return;
    Switch(Mode::kContent);
    Put(text);
  }
  void ToolCall(const std::string& name, const std::string& arguments) {
    if (!name.empty()) {
      Switch(Mode::kNone);
      Put("[tool] " + name + " ");
    }
    Put(arguments);
  }
  void End() {
    Switch(Mode::kNone);
    std::fflush(stdout);
  }

 private:
  enum class Mode { kNone, kReasoning, kContent };

  void Switch(Mode mode) {
    if (mode == mode_) return;
    if (mode_ == Mode::kReasoning && color_) std::fputs("\x1b[0m", stdout);
    if (!fresh_line_) Put("\n");
    if (mode == Mode::kReasoning) std::fputs(color_ ? "\x1b[2m" : "(thinking) ", stdout);
    mode_ = mode;
  }
  void Put(const std::string& text) {
    if (text.empty()) return;
    std::fputs(text.c_str(), stdout);
    std::fflush(stdout);
    fresh_line_ = text.back() == '\n';
  }

  const bool color_;
  Mode mode_ = Mode::kNone;
  bool fresh_line_ = true;
};

std::string TextOr(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

std::string ErrorText(const HttpAnswer& answer) {
  const json body = json::parse(answer.body, nullptr, /*allow_exceptions=*/false);
  std::string message = "HTTP " + std::to_string(answer.status);
  if (body.is_object() && body.contains("error") && body["error"].is_object()) {
    message += ": " + TextOr(body["error"], "message");
  }
  return message;
}

class Conversation {
 public:
  Conversation(const ChatArgs& args, bool color) : args_(args), color_(color) {
    messages_ = json::array();
    if (!args.system.empty()) messages_.push_back({{"role", "system"}, {"content", args.system}});
  }

  void Reset() {
    messages_ = json::array();
    if (!args_.system.empty()) messages_.push_back({{"role", "system"}, {"content", args_.system}});
  }

  // Asks, streams the answer and remembers both. Returns false when nothing was answered.
  bool Turn(const std::string& text) {
    messages_.push_back({{"role", "user"}, {"content", text}});
    HttpCall call;
    call.method = "POST";
    call.url = args_.url + "/v1/chat/completions";
    call.headers = {{"content-type", "application/json"}};
    if (!args_.api_key.empty()) call.headers.push_back({"authorization", "Bearer " + args_.api_key});
    json body = {{"messages", messages_}, {"stream", true}};
    if (!args_.model.empty()) body["model"] = args_.model;
    if (args_.max_tokens > 0) body["max_tokens"] = args_.max_tokens;
    if (args_.temperature >= 0) body["temperature"] = args_.temperature;
    call.body = body.dump(-1, ' ', false, json::error_handler_t::replace);
    call.cancel = &g_cancel;
    g_cancel = false;

    Printer printer(color_);
    Said said;
    bool done = false;
    const absl::StatusOr<HttpAnswer> answer = HttpLines(call, [&](std::string_view line) {
      done = line == "data: [DONE]";
      return !done && Line(line, &printer, &said);
    });
    printer.End();
    if (!done && said.failure.empty() && answer.ok() && answer->status == 200) {
      said.failure = "the answer broke off";
    }
    return Close(answer, said);
  }

 private:
  // What came of one turn.
  struct Said {
    std::string content;
    std::string failure;
    bool cut = false;  // at the limit of tokens
  };

  bool Line(std::string_view line, Printer* printer, Said* said) {
    if (line.substr(0, 5) != "data:") return true;
    line.remove_prefix(5);
    while (!line.empty() && line.front() == ' ') line.remove_prefix(1);
    const json event = json::parse(line, nullptr, /*allow_exceptions=*/false);
    if (!event.is_object()) return true;
    if (event.contains("error") && event["error"].is_object()) {
      said->failure = TextOr(event["error"], "message");
      return true;
    }
    if (!event.contains("choices") || !event["choices"].is_array()) return true;
    for (const json& choice : event["choices"]) {
      if (!choice.is_object() || !choice.contains("delta")) continue;
      said->cut = said->cut || TextOr(choice, "finish_reason") == "length";
      const json& delta = choice["delta"];
      printer->Reasoning(TextOr(delta, "reasoning_content"));
      const std::string part = TextOr(delta, "content");
      printer->Content(part);
      said->content += part;
      if (!delta.contains("tool_calls") || !delta["tool_calls"].is_array()) continue;
      for (const json& tool : delta["tool_calls"]) {
        if (!tool.is_object() || !tool.contains("function")) continue;
        printer->ToolCall(TextOr(tool["function"], "name"), TextOr(tool["function"], "arguments"));
      }
    }
    return true;
  }

  bool Close(const absl::StatusOr<HttpAnswer>& answer, const Said& said) {
    const std::string& content = said.content;
    std::string problem = said.failure;
    if (!answer.ok() && !g_cancel) {
      problem = std::string(StdView(answer.status().message()));
    } else if (answer.ok() && answer->status != 200) {
      problem = ErrorText(*answer);
    }
    if (g_cancel) std::fputs("(cancelled)\n", stdout);
    if (said.cut) std::fputs("(cut off at the limit of tokens)\n", stderr);
    if (!problem.empty()) std::fprintf(stderr, "weir chat: %s\n", problem.c_str());
    if (content.empty() && (g_cancel || !problem.empty())) {
      messages_.erase(messages_.size() - 1);  // the question was not answered: not part of history
      return false;
    }
    messages_.push_back({{"role", "assistant"}, {"content", content}});
    return problem.empty();
  }

  const ChatArgs& args_;
  const bool color_;
  json messages_;
};

// The model to ask for: the one given, else the first that the server lists; empty with a line on
// stderr if there is no answer.
std::string ChooseModel(const ChatArgs& args, const std::string& typed_url) {
  if (!args.model.empty()) return args.model;
  HttpCall call;
  call.url = args.url + "/v1/models";
  if (!args.api_key.empty()) call.headers.push_back({"authorization", "Bearer " + args.api_key});
  const absl::StatusOr<HttpAnswer> answer = HttpFetch(call);
  std::string problem = "the server lists no model";
  if (!answer.ok()) {
    problem = std::string(StdView(answer.status().message()));
  } else if (answer->status != 200) {
    problem = ErrorText(*answer);
  } else {
    const json body = json::parse(answer->body, nullptr, /*allow_exceptions=*/false);
    if (body.is_object() && body.contains("data") && body["data"].is_array()) {
      for (const json& model : body["data"]) {
        if (const std::string id = TextOr(model, "id"); !id.empty()) return id;
      }
    }
  }
  std::fprintf(stderr, "weir chat: %s (--url %s)\n", problem.c_str(), typed_url.c_str());
  return {};
}

constexpr char kHelp[] =
    "/reset forgets the conversation, /exit leaves, Ctrl-C cancels an answer, Ctrl-D leaves.\n";

// Obeys one command; false when the conversation is over.
bool Obey(std::string_view command, Conversation* conversation) {
  if (command == "exit" || command == "quit") return false;
  if (command == "reset") {
    conversation->Reset();
  } else if (command == "help") {
    std::fputs(kHelp, stdout);
  } else {
    std::fprintf(stderr, "weir chat: unknown command /%s. %s", std::string(command).c_str(), kHelp);
  }
  return true;
}

}  // namespace

std::string ChatBaseUrl(std::string_view typed) {
  std::string url(typed);
  if (url.find("://") == std::string::npos) url = "http://" + url;
  const auto trim = [&url](std::string_view end) {
    if (url.size() > end.size() && url.compare(url.size() - end.size(), end.size(), end) == 0) {
      url.resize(url.size() - end.size());
    }
  };
  trim("/");
  trim("/v1");
  return url;
}

std::string_view ChatCommandOf(std::string_view line) {
  if (line.substr(0, 1) != "/") return {};
  const std::string_view word = line.substr(1, line.find(' ') - 1);
  for (const char c : word) {
    if (c < 'a' || c > 'z') return {};
  }
  return word;
}

int RunChat(const ChatArgs& given) {
  struct sigaction action = {};
  action.sa_handler = OnInterrupt;  // no SA_RESTART: a read at the prompt returns
  sigaction(SIGINT, &action, nullptr);
  ChatArgs args = given;
  args.url = ChatBaseUrl(given.url);
  args.model = ChooseModel(args, given.url);
  if (args.model.empty()) return 1;
  const bool color = isatty(STDOUT_FILENO) != 0;
  Conversation conversation(args, color);
  if (!args.once.empty()) return conversation.Turn(args.once) ? 0 : 1;

  // Questions from a pipe are asked one after the other: no prompt, and a failure is the exit code's.
  const bool person = isatty(STDIN_FILENO) != 0;
  if (person) std::printf("Talking to %s. %s", args.url.c_str(), kHelp);
  bool all_answered = true;
  std::string line;
  while (true) {
    g_cancel = false;
    if (person) std::fputs(color ? "\x1b[1m> \x1b[0m" : "> ", stdout);
    std::fflush(stdout);
    if (!std::getline(std::cin, line)) break;
    if (line.empty()) continue;
    if (const std::string_view command = ChatCommandOf(line); !command.empty()) {
      if (!Obey(command, &conversation)) break;
    } else if (!conversation.Turn(line)) {
      all_answered = false;
    }
  }
  if (person) std::fputs("\n", stdout);
  return person || all_answered ? 0 : 1;
}

}  // namespace weir
