// The ledger while it works: each command with its key and state, what it owes and how that goes, and what was given up.

import { html, useEffect, useState } from "./vendor/standalone.module.js";
import { post } from "./api.js";
import { called } from "./directory.js";
import { Icon } from "./icons.js";

const TICK_MS = 250;
const TONES = {
  completed: "good",
  delivered: "good",
  applied: "good",
  refused: "calm",
  superseded: "calm",
  discarded: "calm",
  reserved: "busy",
  pending: "busy",
  in_progress: "busy",
  in_flight: "busy",
  failed_retryable: "warn",
  uncertain: "warn",
  failed: "bad",
  failed_terminal: "bad",
};
const MARKS = { good: "check", calm: "minus", busy: "wait", warn: "alert", bad: "close" };
const OPEN_AT_FIRST = 3;

/** A state as a word with its mark: colour alone says nothing. */
function State({ name }) {
  const tone = TONES[name] ?? "calm";
  return html`<span class=${`state ${tone}`} data-state=${name}><${Icon} name=${MARKS[tone]} size=${12} />${name.replaceAll("_", " ")}</span>`;
}

/** How long until a time of the ledger's clock, counted down. `skew` is that clock minus this one, in milliseconds. */
function Due({ at, skew }) {
  const [, tick] = useState(0);
  const left = at - (Date.now() + skew);
  useEffect(() => {
    if (left <= 0) return undefined;
    const timer = setTimeout(() => tick((n) => n + 1), left > 60_000 ? 10_000 : TICK_MS);
    return () => clearTimeout(timer);
  });
  if (left <= 0) return "due";
  if (left < 60_000) return `in ${(left / 1000).toFixed(1)} s`;
  return left < 5_400_000 ? `in ${Math.round(left / 60_000)} min` : `in ${Math.round(left / 3_600_000)} h`;
}

const clock = (at) => new Date(at).toLocaleTimeString(undefined, { hour12: false });
const tries = (n) => (n === 1 ? "1 try" : `${n} tries`);

function Effect({ effect, skew }) {
  const waits = effect.after_id !== null && effect.next_attempt_at === null && effect.state === "pending";
  return html`<tr data-testid="effect" data-class=${effect.class} data-state=${effect.state}>
    <td><b>${effect.class}</b><span class="target" title=${effect.target}>${effect.target}</span></td>
    <td><${State} name=${effect.state} />${effect.category && effect.state !== "delivered" && html`<span class="target">${effect.category}</span>`}</td>
    <td class="number">${effect.attempts}</td>
    <td class="number">${waits ? `after #${effect.after_id}` : effect.next_attempt_at === null ? "–" : html`<${Due} at=${effect.next_attempt_at} skew=${skew} />`}</td>
  </tr>`;
}

function Effects({ effects, skew }) {
  if (!effects.length) return html`<p class="note">It has no effects.</p>`;
  return html`<table class="effects">
    <thead><tr><th scope="col">Effect</th><th scope="col">State</th><th scope="col" class="number">Tries</th><th scope="col" class="number">Next</th></tr></thead>
    <tbody>${effects.map((effect) => html`<${Effect} key=${effect.id} effect=${effect} skew=${skew} />`)}</tbody>
  </table>`;
}

const aboutOf = (operation) => {
  if (operation.aggregate_id !== "new") return operation.aggregate_id;
  return operation.effects.find((effect) => effect.target.startsWith("Q-"))?.target ?? "a new quote";
};
/** "Create quote" for quote.create. */
function titleOf(kind) {
  const [noun, ...verb] = kind.split(".");
  const words = [...verb, noun].join(" ").replaceAll("_", " ");
  return words[0].toUpperCase() + words.slice(1);
}
const settled = (effect) => ["delivered", "superseded", "discarded"].includes(effect.state);

function Operation({ operation, first, skew, users }) {
  const [chosen, setChosen] = useState(null);
  const ended = operation.outcome ?? operation.state;
  const open = chosen ?? (first || !operation.effects.every(settled));
  const done = operation.effects.filter(settled).length;
  return html`<li class="operation" data-testid="operation" data-kind=${operation.action_kind} data-state=${operation.state}>
    <button type="button" class="operation-head" aria-expanded=${open} onClick=${() => setChosen(!open)}>
      <span class="operation-line"><b title=${operation.action_kind}>${titleOf(operation.action_kind)}</b><${State} name=${ended} /></span>
      <span class="operation-line note">
        <span><code title=${`operation key ${operation.operation_key}`}>${operation.operation_key.slice(0, 8)}</code> · ${aboutOf(operation)}</span>
        <span>${called(users.get(operation.actor)) === "Unknown" ? operation.actor : called(users.get(operation.actor))} · ${clock(operation.created_at)}</span>
      </span>
      <span class="operation-line note">
        <span>${tries(operation.attempts)}${operation.next_attempt_at !== null && html`, next <${Due} at=${operation.next_attempt_at} skew=${skew} />`}</span>
        <span>${operation.effects.length ? `${done} of ${operation.effects.length} ${operation.effects.length === 1 ? "effect" : "effects"} done` : "no effects"}</span>
      </span>
    </button>
    ${open && html`<${Effects} effects=${operation.effects} skew=${skew} />`}
  </li>`;
}

/** A button that runs an operator's command and says what came of it. */
function Order({ name, body, label, testid, told }) {
  const [busy, setBusy] = useState(false);
  async function order() {
    setBusy(true);
    const answer = await post(name, body);
    setBusy(false);
    told(answer.error ? `Nothing was done. ${answer.error}` : answer.said);
  }
  return html`<button type="button" class="button small primary" data-testid=${testid} disabled=${busy} data-busy=${busy || undefined} onClick=${order}>
    <span class="mrkdwn">${label}</span>
  </button>`;
}

function DeadLetter({ letter, person, told }) {
  return html`<li class="letter" data-testid="dead-letter" data-class=${letter.class}>
    <div class="operation-line"><b>#${letter.id} ${letter.class}</b><span class="note">${letter.aggregate_id}</span></div>
    <p class="letter-why">${letter.last_error ?? letter.category}</p>
    <div class="operation-line">
      <span class="note">${tries(letter.attempts)}${letter.prior_replay_count > 0 && `, replayed ${letter.prior_replay_count} times`}, ${letter.category}</span>
      <${Order} name="replay" body=${{ reference: letter.id, user: person }} label="Replay" testid="replay" told=${told} />
    </div>
    <p class="note">In a terminal: <code>./run replay ${letter.id} --wait</code></p>
  </li>`;
}

function Gate({ gate, person, skew, told }) {
  const until = gate.until_at === null ? "until it is resumed" : html`looks again <${Due} at=${gate.until_at} skew=${skew} />`;
  return html`<li class="letter gate" data-testid="gate" data-name=${gate.name}>
    <div class="operation-line"><b>${gate.name} is ${gate.state.replace("_", " ")}</b><span class="note">${gate.cause}</span></div>
    <p class="letter-why">${gate.reason}</p>
    <div class="operation-line">
      <span class="note">${gate.state === "held" ? until : "one effect goes first"}</span>
      ${gate.state === "held" && gate.until_at === null && html`<${Order} name="resume" body=${{ gate: gate.name, user: person }} label="Resume" testid="resume" told=${told} />`}
    </div>
  </li>`;
}

/** "2 effects pending, 1 operation in progress"; with nothing under way, whether somebody has to do something. */
function totalsOf(seen) {
  const left = Object.entries(seen.unfinished).map(([name, count]) => {
    const [noun, ...state] = name.split(" ");
    return `${count} ${noun}${count === 1 ? "" : "s"} ${state.join(" ").replaceAll("_", " ")}`;
  });
  if (left.length) return `${left.join(", ")}.`;
  const dead = seen.dead_letters.length;
  if (!dead) return "Nothing is under way.";
  return `Nothing is under way. ${dead === 1 ? "One dead letter waits" : `${dead} dead letters wait`} for a decision.`;
}

/** The ledger's newest picture, `seen`, as `quotebot ops watch` tells it. */
export function Ledger({ seen, person, users, onOperator }) {
  const [said, setSaid] = useState(null);
  if (!seen) return html`<p class="note pad" role="status">Loading the jobs…</p>`;
  if (seen.error) return html`<p class="note pad" role="status" data-testid="ledger-error">${seen.error}</p>`;
  const skew = seen.now - (seen.heard ?? Date.now());
  const operations = [...seen.operations].sort((a, b) => b.created_at - a.created_at || Number(b.id.slice(2)) - Number(a.id.slice(2)));
  const troubled = seen.gates.length > 0 || seen.dead_letters.length > 0;
  const asked = operations.filter((each) => each.actor_type !== "system");
  const own = operations.filter((each) => each.actor_type === "system");
  const drawn = (each, n) => html`<${Operation} key=${each.id} operation=${each} first=${n < OPEN_AT_FIRST} skew=${skew} users=${users} />`;
  return html`<div class="ledger" data-testid="ledger">
    <p class="totals" data-testid="totals" role="status">${totalsOf(seen)}</p>
    ${said && html`<p class="said" role="status" data-testid="said">${said}</p>`}
    ${seen.gates.length > 0 && html`<ul class="letters">${seen.gates.map((gate) => html`<${Gate} key=${gate.name} gate=${gate} person=${person} skew=${skew} told=${setSaid} />`)}</ul>`}
    ${seen.dead_letters.length > 0 &&
    html`<section aria-label="Dead letters">
      <h2>Dead letters</h2>
      <ul class="letters">${seen.dead_letters.map((letter) => html`<${DeadLetter} key=${letter.id} letter=${letter} person=${person} told=${setSaid} />`)}</ul>
    </section>`}
    ${troubled && onOperator && html`<button type="button" class="link-button" data-testid="see-operator" onClick=${onOperator}>See what the operator sees</button>`}
    <section aria-label="What people asked for">
      <h2>What people asked for</h2>
      ${asked.length === 0 && html`<p class="note">Nothing yet. Create a quote.</p>`}
      <ul class="operations">${asked.map(drawn)}</ul>
    </section>
    ${own.length > 0 &&
    html`<details class="own" data-testid="own-work">
      <summary>What the bot does by itself (${own.length})</summary>
      <ul class="operations">${own.map((each) => drawn(each, OPEN_AT_FIRST))}</ul>
    </details>`}
  </div>`;
}
