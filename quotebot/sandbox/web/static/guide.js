// A first visitor's way to a deal: three clicks, then an invitation to break something. Each click does what its words say.

import { html, useState } from "./vendor/standalone.module.js";
import { post } from "./api.js";
import { EXAMPLE } from "./composer.js";
import { isReply } from "./directory.js";
import { Icon } from "./icons.js";
import { useRemembered } from "./memory.js";

const STEPS = [
  { name: "create", title: "Create a quote", button: "Create it", words: "Rep types /quote new. The bot prices it and posts its card." },
  { name: "submit", title: "Submit it", button: "Submit it", words: "Rep presses Submit on the card. A 15% discount needs the manager." },
  { name: "approve", title: "Approve it as the manager", button: "Approve it", words: "You become Manager and press Approve." },
];

const buttonsOf = (message) => (message.blocks ?? []).flatMap((block) => (block.elements ?? []).filter((each) => each.type === "button").map((each) => ({ ...each, block_id: block.block_id })));
const named = (message, word) => buttonsOf(message).find((each) => each.text.text.startsWith(word));

/** The newest quote card of a channel. */
const newest = (messages, channel) => messages.filter((each) => each.channel === channel && each.bot_id && !isReply(each) && !each.ephemeral_for && each.blocks?.length).at(-1);

/**
 * What the visitor's next click is on and which step that is: {card, at}, `at` from 0 (there is no quote since `from`) to 3 (nothing is
 * left to do). Whoever approves may be asked on the quote's own card or by a message of their own.
 */
function progress(messages, channel, from) {
  const since = messages.filter((each) => each.bot_id && Number(each.ts) > Number(from));
  const card = newest(since, channel);
  if (!card) return { card: null, at: 0 };
  if (named(card, "Submit") || named(card, "Approve &")) return { card, at: 1 };
  const asked = since.filter((each) => named(each, "Approve")).at(-1);
  return { card: asked ?? card, at: asked ? 2 : 3 };
}

function Step({ step, n, at, busy, onDo }) {
  const done = n < at;
  const now = n === at;
  return html`<li class=${done ? "done" : now ? "now" : ""} aria-current=${now ? "step" : undefined}>
    <span class="guide-mark" aria-hidden="true">${done ? html`<${Icon} name="check" size=${14} />` : n + 1}</span>
    <div class="guide-words"><b>${step.title}</b>${done && html`<span class="hidden">, done</span>`}${now && html`<span class="note">${step.words}</span>`}</div>
    ${now &&
    html`<button type="button" class="button small primary" data-testid="guide-do" disabled=${busy} data-busy=${busy || undefined} onClick=${onDo}>
      <span class="mrkdwn">${step.button}</span>
    </button>`}
  </li>`;
}

/** The guide. `people` are the workspace's; `onPerson(id)` becomes one; `onBackstage(tab)` opens the panel; `onDismiss` closes it for good. */
export function Guide({ messages, channel, people, onPerson, onBackstage, onDismiss }) {
  const [from] = useRemembered("guided-from", newest(messages, channel)?.ts ?? "0"); // deals of others are not the visitor's
  const { card, at } = progress(messages, channel, from);
  const [asked, setAsked] = useState(-1); // the step whose click is on its way
  const [trouble, setTrouble] = useState(null);
  const rep = people.find((user) => user.role === "rep") ?? people[0];
  const manager = people.find((user) => user.role === "sales_manager") ?? people[0];

  async function perform() {
    setAsked(at);
    setTrouble(null);
    const person = at === 2 ? manager : rep;
    onPerson(person.id);
    const [command, ...words] = EXAMPLE.split(" ");
    const button = at > 0 && ((at === 1 && named(card, "Submit")) || named(card, "Approve"));
    const answer =
      at === 0
        ? await post("slash", { user: person.id, channel, command, text: words.join(" ") })
        : await post("action", { user: person.id, channel: card.channel, message_ts: card.ts, action_id: button.action_id, block_id: button.block_id, value: button.value });
    if (!answer.error) return;
    setAsked(-1);
    setTrouble(`The bot did not answer (${answer.error}). Try again.`);
  }
  return html`<section class="guide" data-testid="guide" data-at=${at} aria-label="Your first deal">
    <header>
      <h2>${at < 3 ? "Your first deal, in three clicks" : "That was a deal. Now break something."}</h2>
      <button type="button" class="icon-button" aria-label="Close the guide" data-testid="guide-close" onClick=${onDismiss}><${Icon} name="close" size=${16} /></button>
    </header>
    ${at < 3
      ? html`<ol>${STEPS.map((step, n) => html`<${Step} key=${step.name} step=${step} n=${n} at=${at} busy=${asked === at} onDo=${perform} />`)}</ol>`
      : html`<p>
            The PDF goes into the card's thread, the quote to Salesforce. Take Salesforce down, or kill the bot in the middle of the next one, and watch in the
            ledger how it ends the same.
          </p>
          <div class="guide-deeds">
            <button type="button" class="button small primary" data-testid="guide-break" onClick=${() => onBackstage("faults")}>Break something</button>
            <button type="button" class="button small" data-testid="guide-ledger" onClick=${() => onBackstage("ledger")}>Watch the ledger</button>
          </div>`}
    ${trouble && html`<p class="trouble" role="alert">${trouble}</p>`}
  </section>`;
}
