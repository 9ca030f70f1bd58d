"""Client of Slack's Web API, its error tables and the rules of Block Kit."""
