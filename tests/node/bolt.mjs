// An ordinary @slack/bolt app, for tests/sandbox/test_bolt_js.py: it tells on stdout, one JSON line each, what reached it.

import { createRequire } from "node:module";

const { App, LogLevel } = createRequire(`${process.env.NODE_FOLDER}/index.js`)("@slack/bolt");
const tell = (what, more = {}) => process.stdout.write(`${JSON.stringify({ what, ...more })}\n`);
const plain = (text) => ({ type: "plain_text", text });

const app = new App({
  token: process.env.SLACK_BOT_TOKEN,
  appToken: process.env.SLACK_APP_TOKEN,
  socketMode: true,
  logLevel: LogLevel.ERROR,
  clientOptions: { slackApiUrl: process.env.SLACK_API_URL },
});

app.command("/quote", async ({ command, ack, respond, say }) => {
  await ack("On it");
  await respond(`You typed ${command.text}`);
  await say({
    text: "A card",
    blocks: [{ type: "actions", elements: [{ type: "button", action_id: "reject", text: plain("Reject"), value: "Q-1" }] }],
  });
  tell("command", { text: command.text });
});

app.action("reject", async ({ ack, body, client }) => {
  await ack();
  const element = { type: "plain_text_input", action_id: "text" };
  const blocks = [{ type: "input", block_id: "why", label: plain("Why?"), element }];
  await client.views.open({ trigger_id: body.trigger_id, view: { type: "modal", callback_id: "reason", title: plain("Reject"), submit: plain("Send"), blocks } });
  tell("action", { value: body.actions[0].value });
});

app.view("reason", async ({ ack, view, client, body }) => {
  const why = view.state.values.why.text.value;
  if (why.length < 10) return ack({ response_action: "errors", errors: { why: "Say it in a sentence." } });
  await ack();
  await client.chat.postMessage({ channel: body.user.id, text: `Noted: ${why}` });
  return tell("view", { why });
});

app.event("app_mention", async ({ event, client, body }) => {
  const file = await client.filesUploadV2({ channel_id: event.channel, thread_ts: event.ts, filename: "a.txt", file: Buffer.from("a quote"), initial_comment: "Here" });
  tell("mention", { text: event.text, retry: body.retry_attempt ?? 0, uploaded: file.ok });
});

app.error(async (error) => tell("error", { message: String(error) }));

await app.start();
tell("started");
