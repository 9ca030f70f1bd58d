// A first visitor's way to a deal: one line that names the next click and points at the button on the card itself.

import { html, useState } from "./vendor/standalone.module.js";
import { post } from "./api.js";
import { EXAMPLE } from "./composer.js";
import { called, isReply } from "./directory.js";
import { Icon } from "./icons.js";

const DONE = 3;
const SUBMIT = ["quote.submit"];
const APPROVE = ["approval.approve", "approval.approve_with_reason"];
const CUSTOMERS = ["Acme", "Globex", "Initech", "Hooli", "Umbrella"];

const buttonsOf = (message) => (message.blocks ?? []).flatMap((block) => (block.elements ?? []).filter((each) => each.type === "button"));
const buttonFor = (message, ...actions) => buttonsOf(message).find((each) => actions.includes(each.action_id)); // its label is in any language

/** What a newcomer can send, for the first customer who has no card in a channel: the bot asks before it makes the same quote twice. */
function exampleFor(state, channel) {
  const titles = state.messages.filter((each) => each.channel === channel).map((each) => each.blocks?.[0]?.text?.text ?? "");
  const customer = CUSTOMERS.find((name) => !titles.some((title) => title.startsWith(name))) ?? `Customer ${titles.length}`;
  return EXAMPLE.replace(CUSTOMERS[0], customer);
}

/** Where a button of a message is, as a click tells it, and what it says. */
const placeOf = (message, button) => ({ channel: message.channel, ts: message.ts, action_id: button.action_id, value: button.value, label: button.text.text });

/** Who is asked in their own messages, else the sales manager. */
function approverOf(state, asked, people) {
  const channel = state.channels.find((each) => each.id === asked?.channel && each.is_im);
  return people.find((user) => channel?.members.includes(user.id)) ?? people.find((user) => user.role === "sales_manager") ?? people[0];
}

/**
 * What the visitor's next click is: {at, person, pointed}. `at` goes from 0 (there is no quote since `from`) to 3 (the newest quote is
 * decided), `person` is who makes the click, `pointed` the buttons that do it. Whoever approves is asked on the quote's own card and by a
 * message of their own, or by that message alone.
 */
export function nextClick(state, channel, from, people) {
  const rep = people.find((user) => user.role === "rep") ?? people[0];
  const since = state.messages.filter((each) => each.bot_id && !each.ephemeral_for && Number(each.ts) > Number(from));
  const card = since.filter((each) => each.channel === channel && !isReply(each) && each.blocks?.length).at(-1);
  if (!card) return { at: 0, person: rep, pointed: [] };
  const submit = buttonFor(card, ...SUBMIT);
  if (submit) return { at: 1, person: rep, pointed: [placeOf(card, submit)] };
  const copies = since.filter((each) => each.channel !== channel && Number(each.ts) > Number(card.ts) && buttonFor(each, ...APPROVE));
  const asked = [...(buttonFor(card, ...APPROVE) ? [card] : []), ...copies];
  if (!asked.length) return { at: DONE, person: null, pointed: [] };
  return { at: 2, person: approverOf(state, copies.at(-1), people), pointed: asked.map((each) => placeOf(each, buttonFor(each, ...APPROVE))) };
}

function Words({ next, me, channel }) {
  const { at, person, pointed } = next;
  if (at === DONE) return html`<b>That was a deal. Now break something.</b>`;
  if (at === 0) return html`<b>Your first deal: three clicks, three minutes.</b> It begins with a quote.`;
  if (me !== person.id) return html`The next click is for <b>${called(person)}</b>. Switch at the top left.`;
  return html`Press <b>${pointed[0].label}</b> ${pointed[0].channel === channel ? "on the card" : "in Quotebot's message, under Apps"}${at === 2 && ", and confirm"}.`;
}

/**
 * The guide. `next` is the next click; `onPerson(id)` becomes a person, `onBreak` opens what can be broken, `onOperator` shows the
 * operators' channel (null while nothing is in it), `onAgain` starts at the first step, `onDismiss` closes the guide for good.
 */
export function Guide({ state, next, me, channel, onPerson, onBreak, onOperator, onAgain, onDismiss }) {
  const [busy, setBusy] = useState(false);
  const [trouble, setTrouble] = useState(null);
  const { at, person } = next;

  async function create() {
    setBusy(true);
    setTrouble(null);
    onPerson(person.id);
    const [command, ...words] = exampleFor(state, channel).split(" ");
    const answer = await post("slash", { user: person.id, channel, command, text: words.join(" ") });
    setBusy(false);
    if (answer.error) setTrouble(`The bot did not answer (${answer.error}). Try again.`);
  }
  const button = (testid, label, onClick, look = "") => html`<button type="button" class=${`button small ${look}`} data-testid=${testid} disabled=${busy} data-busy=${busy || undefined} onClick=${onClick}>
    <span class="mrkdwn">${label}</span>
  </button>`;
  return html`<section class="guide" data-testid="guide" data-at=${at} aria-label="Your first deal">
    <span class="guide-mark" aria-hidden="true">${at === DONE ? html`<${Icon} name="check" size=${14} />` : at + 1}</span>
    <div class="guide-line">
      <p class="guide-words" role="status">${at < DONE && html`<span class="hidden">Step ${at + 1} of ${DONE}. </span>`}<${Words} next=${next} me=${me} channel=${channel} /></p>
      ${at === 0 && button("guide-do", "Create it", create, "primary")}
      ${at > 0 && at < DONE && me !== person.id && button("guide-switch", `Switch to ${called(person)}`, () => onPerson(person.id), "primary")}
      ${at === DONE &&
      html`${onOperator
          ? html`<button type="button" class="link-button" data-testid="guide-operator" onClick=${onOperator}>See what the operator sees</button>`
          : html`<button type="button" class="link-button" data-testid="guide-again" onClick=${onAgain}>Another deal</button>`}
        ${button("guide-break", "Break something", onBreak, "primary")}`}
    </div>
    <button type="button" class="icon-button" aria-label="Close the guide" data-testid="guide-close" onClick=${onDismiss}><${Icon} name="close" size=${16} /></button>
    ${trouble && html`<p class="trouble" role="alert">${trouble}</p>`}
  </section>`;
}
