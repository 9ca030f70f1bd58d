// Block Kit's layout: from a list of blocks to what a person sees. Unknown blocks are shown as what they are, never dropped.

import { html } from "./vendor/standalone.module.js";
import { Element, Field, Picture } from "./elements.js";
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

function Input({ block, form }) {
  const id = `field-${block.block_id}`;
  const error = form?.errors[block.block_id];
  const notes = `${id}-notes`;
  const grouped = block.element.type === "radio_buttons" || block.element.type === "checkboxes";
  return html`<div class=${`block input ${error ? "invalid" : ""}`} data-block-id=${block.block_id}>
    <label class="label" for=${grouped ? undefined : id}>
      <${Text} text=${block.label} />${block.optional && html` <span class="optional">(optional)</span>`}
    </label>
    <${Field}
      element=${block.element}
      id=${id}
      value=${form?.values[block.block_id] ?? ""}
      described=${notes}
      onChange=${(value) => form?.set(block.block_id, block.element.action_id, value)}
    />
    <div id=${notes}>
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
      return html`<${Input} block=${block} form=${form} />`;
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
