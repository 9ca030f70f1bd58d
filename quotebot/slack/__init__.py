"""The Slack surface: envelopes in, words and cards out."""
