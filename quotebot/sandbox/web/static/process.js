// The processes of this sandbox, each bot's and their database's: how they are doing, and what one may do to them.

import { html, useState } from "./vendor/standalone.module.js";
import { post } from "./api.js";
import { Icon } from "./icons.js";

const WORDS = { running: "is running", starting: "is starting", stopping: "is stopping", dead: "is dead" };

function noteOf(process, several) {
  if (process.state !== "dead") return `process ${process.pid}${process.starts > 1 ? `, start ${process.starts}` : ""}`;
  return process.exit_status === -9 ? `killed; its unfinished work ${several ? "goes to another" : "waits for the start"}` : `ended with status ${process.exit_status}`;
}

/** One process with its buttons, each {deed, label, name, look, testid, title, icon}. `call` is the part of the control API that takes the deeds, `replica` whose they are. */
function Control({ call, replica, testid, label, state, words, note, buttons }) {
  const [busy, setBusy] = useState(null);
  const [trouble, setTrouble] = useState(null);

  async function order(deed) {
    setBusy(deed);
    setTrouble(null);
    const answer = await post(call, { do: deed, replica });
    setBusy(null);
    if (answer.error) setTrouble(`Nothing was done. ${answer.error}`);
  }
  return html`<section class="bot-control" data-testid=${testid} data-replica=${replica} data-state=${state} aria-label=${label}>
    <div class="bot-words" role="status">
      <span class=${`lamp lamp-${state}`}></span>
      <div><b>${words}</b><span class="note">${note}</span></div>
    </div>
    <div class="bot-buttons">
      ${buttons.map(
        (each) => html`<button key=${each.testid} type="button" class=${`button small ${each.look}`} data-testid=${each.testid} disabled=${busy !== null || state === "stopping"} data-busy=${busy === each.deed || undefined} title=${each.title} aria-label=${each.name} onClick=${() => order(each.deed)}>
          ${each.icon && html`<${Icon} name=${each.icon} size=${14} />`}<span class="mrkdwn">${each.label}</span>
        </button>`,
      )}
    </div>
    ${trouble && html`<p class="trouble" role="alert">${trouble}</p>`}
  </section>`;
}

const kill = (testid, label) => ({ deed: "kill", testid, label, look: "danger", icon: "bolt", title: "SIGKILL: no farewell, no clean-up" });

/** What each bot's process is doing. */
export function BotControls({ replicas }) {
  if (replicas.length === 0) return html`<p class="bot-control note" data-testid="bot-control">The bot runs somewhere else: it cannot be killed from here.</p>`;
  return replicas.map((each) => html`<${BotControl} key=${each.name} process=${each} several=${replicas.length > 1} />`);
}

/** One bot's process, with Kill and Restart. Nothing is asked first: to survive this is what the bot is for. */
function BotControl({ process, several }) {
  const { name, state } = process;
  const who = several ? `Bot ${name}` : "The bot";
  const again =
    state === "dead"
      ? { deed: "start", testid: "restart", label: several ? "Start" : "Start it again", look: "primary" }
      : { deed: "restart", testid: "restart", label: "Restart", look: "" };
  const every = state === "dead" ? [again] : [kill("kill", several ? "Kill" : "Kill the bot now"), again];
  const buttons = several ? every.map((each) => ({ ...each, name: `${each.label} bot ${name}` })) : every;
  return html`<${Control} call="bot" replica=${name} testid="bot-control" label=${several ? `The process of bot ${name}` : "The bot's process"} state=${state} words=${`${who} ${WORDS[state]}`} note=${noteOf(process, several)} buttons=${buttons} />`;
}

/** What the ledger's database server is doing, with Kill or Start where it is this sandbox's own. */
export function DatabaseControl({ database }) {
  const { engine, state, pid } = database;
  if (state === "elsewhere")
    return html`<p class="bot-control note" data-testid="database-control" data-state=${state}>The ledger is in ${engine} on a server that runs somewhere else: it cannot be killed from here.</p>`;
  const button =
    state === "dead"
      ? { deed: "start", testid: "database-start", label: "Start the database", look: "primary" }
      : kill("database-kill", "Kill the database");
  const note = state === "dead" ? "killed; what it recorded is in its files" : `the ledger's database, process ${pid ?? "…"}`;
  return html`<${Control} call="database" testid="database-control" label="The ledger's database" state=${state} words=${`${engine} ${WORDS[state]}`} note=${note} buttons=${[button]} />`;
}
