"""Acknowledgements measured from Slack's side: the bot beside applications that store nothing."""
