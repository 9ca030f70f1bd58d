"""The Slack half of the local world: Web API, Socket Mode and the people who type and click."""
