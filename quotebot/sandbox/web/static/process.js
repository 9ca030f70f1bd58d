// The bot's own process: how it is doing, and the two things one may do to it.

import { html, useState } from "./vendor/standalone.module.js";
import { post } from "./api.js";
import { Icon } from "./icons.js";

const WORDS = {
  running: "The bot is running",
  starting: "The bot is starting",
  stopping: "The bot is stopping",
  dead: "The bot is dead",
};

function noteOf(process) {
  if (process.state !== "dead") return `process ${process.pid}${process.starts > 1 ? `, start ${process.starts}` : ""}`;
  return process.exit_status === -9 ? "killed; its unfinished work waits for the start" : `ended with status ${process.exit_status}`;
}

/** What the bot's process is doing, with Kill and Restart. Nothing is asked first: to survive this is what the bot is for. */
export function BotControl({ process }) {
  const [busy, setBusy] = useState(null);
  const [trouble, setTrouble] = useState(null);
  if (!process) return html`<p class="bot-control note" data-testid="bot-control">The bot runs somewhere else: it cannot be killed from here.</p>`;

  async function order(deed) {
    setBusy(deed);
    setTrouble(null);
    const answer = await post("bot", { do: deed });
    setBusy(null);
    if (answer.error) setTrouble(`Nothing was done. ${answer.error}`);
  }
  const { state } = process;
  return html`<section class="bot-control" data-testid="bot-control" data-state=${state} aria-label="The bot's process">
    <div class="bot-words" role="status">
      <span class=${`lamp lamp-${state}`}></span>
      <div><b>${WORDS[state]}</b><span class="note">${noteOf(process)}</span></div>
    </div>
    <div class="bot-buttons">
      ${state !== "dead" &&
      html`<button type="button" class="button small danger" data-testid="kill" disabled=${busy !== null || state === "stopping"} title="SIGKILL: no farewell, no clean-up" onClick=${() => order("kill")}>
        <${Icon} name="bolt" size=${14} /> Kill the bot now
      </button>`}
      <button type="button" class=${`button small ${state === "dead" ? "primary" : ""}`} data-testid="restart" disabled=${busy !== null || state === "stopping"} data-busy=${busy === "restart" || undefined} onClick=${() => order(state === "dead" ? "start" : "restart")}>
        <span class="mrkdwn">${state === "dead" ? "Start it again" : "Restart"}</span>
      </button>
    </div>
    ${trouble && html`<p class="trouble" role="alert">${trouble}</p>`}
  </section>`;
}
