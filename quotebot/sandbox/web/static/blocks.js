// Block Kit's layout: from a list of blocks to what a person sees. Unknown blocks are shown as what they are, never dropped.

import { html, useContext } from "./vendor/standalone.module.js";
import { Directory } from "./directory.js";
import { Element, Picture } from "./elements.js";
import { Field, isGroup } from "./fields.js";
import { RichText } from "./richtext.js";
import { Text } from "./mrkdwn.js";

function Section({ block, surface }) {
  return html`<div class="block section">
    <div class="section-text">
      ${block.text && html`<${Text} text=${block.text} />`}
      ${block.fields && html`<div class="fields">${block.fields.map((field) => html`<div><${Text} text=${field} /></div>`)}</div>`}
    </div>
    ${block.accessory && html`<div class="accessory"><${Element} element=${block.accessory} surface=${surface} /></div>`}
  </div>`;
}

function Context({ block }) {
  const part = (element) =>
    element.type === "image"
      ? html`<${Picture} url=${element.image_url} alt=${element.alt_text} />`
      : html`<span><${Text} text=${element} /></span>`;
  return html`<div class="block context">${block.elements.map(part)}</div>`;
}

function Actions({ block, surface }) {
  return html`<div class="block actions">
    ${block.elements.map((element) => html`<${Element} key=${element.action_id} element=${element} surface=${surface} />`)}
  </div>`;
}

function Image({ block }) {
  return html`<figure class="block image">
    ${block.title && html`<figcaption><${Text} text=${block.title} /></figcaption>`}
    <${Picture} url=${block.image_url} alt=${block.alt_text} />
  </figure>`;
}

const TYPED = new Set(["plain_text_input", "number_input", "email_text_input", "url_text_input"]);

/** When an input that asks for it (`dispatch_action`) tells the bot: a choice at once, typed text with Enter or at each character. */
function useDispatch(block, surface) {
  const { act } = useContext(Directory);
  if (!block.dispatch_action) return { onChoice: () => {}, onEnter: undefined };
  const { action_id: actionId, type, dispatch_action_config: config } = block.element;
  const send = (value) => act({ ...surface, block_id: block.block_id, action_id: actionId, value });
  const on = config?.trigger_actions_on ?? ["on_enter_pressed"];
  return {
    onChoice: (value) => (!TYPED.has(type) || on.includes("on_character_entered")) && send(value),
    onEnter: TYPED.has(type) && on.includes("on_enter_pressed") ? send : undefined,
  };
}

function Input({ block, form, surface }) {
  const id = `field-${block.block_id}`;
  const error = form?.errors[block.block_id];
  const grouped = isGroup(block.element);
  const value = form?.values[block.block_id] ?? "";
  const { onChoice, onEnter } = useDispatch(block, surface);
  const onChange = (chosen) => {
    form?.set(block.block_id, block.element.action_id, chosen);
    onChoice(chosen);
  };
  return html`<div class=${`block input ${error ? "invalid" : ""}`} data-block-id=${block.block_id}>
    <label class="label" id=${`${id}-label`} for=${grouped ? undefined : id}>
      <${Text} text=${block.label} />${block.optional && html` <span class="optional">(optional)</span>`}
    </label>
    <${Field}
      element=${block.element}
      id=${id}
      value=${value}
      labelled=${`${id}-label`}
      described=${`${id}-notes`}
      invalid=${Boolean(error)}
      surface=${surface}
      onChange=${onChange}
      onEnter=${onEnter && (() => onEnter(value))}
    />
    <div id=${`${id}-notes`}>
      ${error && html`<p class="error" role="alert">${error}</p>`}
      ${block.hint && html`<p class="hint"><${Text} text=${block.hint} /></p>`}
    </div>
  </div>`;
}

function Block({ block, surface: whole, form }) {
  const surface = { ...whole, block_id: block.block_id, ...(form ? { values: form.typed } : {}) };
  switch (block.type) {
    case "header":
      return html`<h3 class="block header"><${Text} text=${block.text} /></h3>`;
    case "section":
      return html`<${Section} block=${block} surface=${surface} />`;
    case "context":
      return html`<${Context} block=${block} />`;
    case "divider":
      return html`<hr class="block" />`;
    case "actions":
      return html`<${Actions} block=${block} surface=${surface} />`;
    case "image":
      return html`<${Image} block=${block} />`;
    case "input":
      return html`<${Input} block=${block} form=${form} surface=${surface} />`;
    case "rich_text":
      return html`<div class="block"><${RichText} block=${block} /></div>`;
    default:
      return html`<details class="block unknown">
        <summary>A ${block.type} block, which this page does not draw</summary>
        <pre>${JSON.stringify(block, null, 2)}</pre>
      </details>`;
  }
}

/** A surface's blocks. `surface` says where a click came from: {channel, message_ts} or {view_id}; `form` holds a view's values. */
export function Blocks({ blocks, surface, form }) {
  return html`<div class="blocks">
    ${blocks.map((block, n) => html`<${Block} key=${block.block_id ?? n} block=${block} surface=${surface} form=${form} />`)}
  </div>`;
}
