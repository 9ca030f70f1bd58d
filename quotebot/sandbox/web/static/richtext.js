// Slack's rich_text block, the shape its own editor writes.

import { html } from "./vendor/standalone.module.js";
import { Emoji, Link, UserPill } from "./mrkdwn.js";

const STYLES = { bold: "b", italic: "i", strike: "s", code: "code" };

function Leaf({ leaf }) {
  switch (leaf.type) {
    case "text":
      return Object.entries(STYLES).reduce(
        (inner, [style, tag]) => (leaf.style?.[style] ? html`<${tag}>${inner}</${tag}>` : inner),
        leaf.text,
      );
    case "link":
      return html`<${Link} url=${leaf.url}>${leaf.text ?? leaf.url}</${Link}>`;
    case "emoji":
      return html`<${Emoji} name=${leaf.name} />`;
    case "user":
      return html`<${UserPill} id=${leaf.user_id} />`;
    case "broadcast":
      return html`<span class="pill">@${leaf.range}</span>`;
    default:
      return null;
  }
}

const leaves = (part) => (part.elements ?? []).map((leaf) => html`<${Leaf} leaf=${leaf} />`);

function Part({ part }) {
  switch (part.type) {
    case "rich_text_list": {
      const tag = part.style === "ordered" ? "ol" : "ul";
      return html`<${tag} class="rich-list">${part.elements.map((item) => html`<li>${leaves(item)}</li>`)}</${tag}>`;
    }
    case "rich_text_preformatted":
      return html`<pre>${leaves(part)}</pre>`;
    case "rich_text_quote":
      return html`<blockquote>${leaves(part)}</blockquote>`;
    default:
      return html`<div>${leaves(part)}</div>`;
  }
}

/** One rich_text block. */
export function RichText({ block }) {
  return html`<div class="mrkdwn">${(block.elements ?? []).map((part) => html`<${Part} part=${part} />`)}</div>`;
}
