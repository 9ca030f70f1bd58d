// A face for everyone: initials on a colour that stays the same for the same id.

import { html } from "./vendor/standalone.module.js";

const COLOURS = 8;

function colourOf(id) {
  let sum = 0;
  for (const character of id ?? "") sum = (sum * 31 + character.codePointAt(0)) % 9973;
  return sum % COLOURS;
}

const initials = (name) =>
  name
    .split(/[\s_-]+/)
    .filter(Boolean)
    .slice(0, 2)
    .map((word) => [...word][0].toUpperCase())
    .join("");

const APP = "M9 8h14a2 2 0 0 1 2 2v9a2 2 0 0 1-2 2h-6l-5 4v-4H9a2 2 0 0 1-2-2v-9a2 2 0 0 1 2-2zM11.5 12.500h9M11.5 16.500h6";
const SLACKBOT = "M9 9h14a3 3 0 0 1 3 3v8a3 3 0 0 1-3 3H9a3 3 0 0 1-3-3v-8a3 3 0 0 1 3-3zM12 14v2M20 14v2M13 19.500q3 1.8 6 0";

/** An avatar. Apps get the quote mark, the workspace's own voice a face. `size`: tiny, small, large or normal. */
export function Avatar({ id, name, app, slackbot, size = "" }) {
  if (app || slackbot) {
    return html`<span class=${`avatar ${size} ${app ? "avatar-app" : "avatar-slackbot"}`} aria-hidden="true">
      <svg viewBox="0 0 32 32"><path d=${app ? APP : SLACKBOT} /></svg>
    </span>`;
  }
  return html`<span class=${`avatar ${size} avatar-${colourOf(id)}`} aria-hidden="true">${initials(name ?? "?")}</span>`;
}
