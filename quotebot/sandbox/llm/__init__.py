"""An OpenAI-compatible endpoint that answers by fixed rules. It is not a model and says so in every answer."""

from quotebot.sandbox.llm.service import LlmService

__all__ = ["LlmService"]
