"""qwen-agent: its own parser reads the calls of every answer."""

from qwen_agent.llm.fncall_prompts.nous_fncall_prompt import NousFnCallPrompt
from qwen_agent.llm.schema import ASSISTANT, ContentItem, Message
from reported import lines_of, places, row


def calls_of(answer: str) -> int:
    """How many calls the parser finds whose arguments are JSON."""
    given = [Message(role=ASSISTANT, content=[ContentItem(text=answer)])]
    parsed = NousFnCallPrompt().postprocess_fncall_messages(given)
    return sum(message.function_call is not None for message in parsed)


def main() -> None:
    """Parse all answers; a sample counts when every call was found."""
    export, _ = places()
    for name in ("messages", "action_line") if (export / "action_line").exists() else ("messages",):
        lines = [one for path in (export / name).glob("*.jsonl") for one in lines_of(path)]
        answers = [line["messages"][-1]["content"] for line in lines]
        found = sum(calls_of(text) == text.count("<tool_call>\n") for text in answers)
        row(f"{name} (JSON Lines)", len(lines), found)


if __name__ == "__main__":
    main()
