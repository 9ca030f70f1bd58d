// A bot's modal view: a form that is sent once and shows what the bot refused, field by field.

import { html, useEffect, useRef, useState } from "./vendor/standalone.module.js";
import { acknowledged, post } from "./api.js";
import { Blocks } from "./blocks.js";
import { Dialog, Head } from "./dialogs.js";
import { Icon } from "./icons.js";
import { Text } from "./mrkdwn.js";
import { initialOf, isEmpty } from "./values.js";

const UNANSWERED = "We had some trouble connecting. Try again?";

/** Each input of a view with what it holds now: [block, value]. */
function filled(view, typed) {
  return view.blocks
    .filter((block) => block.type === "input")
    .map((block) => [block, typed[block.block_id]?.[block.element.action_id] ?? initialOf(block.element)]);
}

/** A bot's form. What was typed survives the bot's own updates of the view, block by block. */
export function ViewModal({ entry, me, onClose }) {
  const { view } = entry;
  const [typed, setTyped] = useState({});
  const [busy, setBusy] = useState(false);
  const [trouble, setTrouble] = useState(null);
  const sending = useRef(false);
  const self = useRef(null);

  const inputs = filled(view, typed);
  const submission = Object.fromEntries(
    inputs.map(([block, value]) => [block.block_id, { [block.element.action_id]: isEmpty(value) ? null : value }]),
  );
  const form = {
    typed: submission, // goes along with a click inside the form, as the bot is told the state of every field
    values: Object.fromEntries(inputs.map(([block, value]) => [block.block_id, value])),
    errors: entry.errors ?? {},
    set: (block, action, value) => setTyped((old) => ({ ...old, [block]: { ...old[block], [action]: value } })),
  };

  const whole = entry.errors?.[""] || trouble; // what is wrong with the form as a whole

  async function submit(event) {
    event.preventDefault();
    if (sending.current) return;
    sending.current = true;
    setBusy(true);
    setTrouble(null);
    const answer = await post("submit", { user: me, view_id: view.id, values: submission });
    sending.current = false;
    setBusy(false);
    // What Slack's own client refuses (an empty field, no number) is shown at its field, like the bot's own errors.
    if (!acknowledged(answer) && !answer.errors) setTrouble(UNANSWERED);
  }

  const wrong = Object.keys(entry.errors ?? {}).sort().join();
  useEffect(() => {
    if (wrong) self.current.querySelector(".invalid :is(input, select, textarea)")?.focus();
  }, [wrong]);

  return html`<${Dialog} label=${view.title?.text ?? "Form"} testid="view-modal" onClose=${onClose}>
    <form ref=${self} onSubmit=${submit} aria-busy=${busy} novalidate data-view-id=${view.id}>
      <${Head} title=${html`<${Text} text=${view.title} />`} onClose=${onClose} />
      <div class="dialog-body">
        ${whole && html`<p class="trouble" role="alert"><${Icon} name="alert" size=${16} /> ${whole}</p>`}
        <${Blocks} blocks=${view.blocks} surface=${{ view_id: view.id }} form=${form} />
      </div>
      <footer class="dialog-foot">
        <button type="button" class="button" data-testid="view-close" onClick=${onClose}>
          <${Text} text=${view.close ?? { type: "plain_text", text: view.submit ? "Cancel" : "Close" }} />
        </button>
        ${view.submit &&
        html`<button type="submit" class="button primary" data-testid="view-submit" disabled=${busy} data-busy=${busy || undefined}>
          <${Text} text=${view.submit} />
        </button>`}
      </footer>
    </form>
  </${Dialog}>`;
}
