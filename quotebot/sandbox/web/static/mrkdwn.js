// Slack's mrkdwn as virtual nodes. Everything becomes a text node or a known element: nothing is ever parsed as HTML.

import { html, useContext } from "./vendor/standalone.module.js";
import { drawing } from "./drawn.js";
import { cutAtEmoji, emoji } from "./emoji.js";
import { Directory } from "./directory.js";

const TAGS = { "*": "b", "_": "i", "~": "s" };
const WORD = /[\p{L}\p{N}]/u;
const LINK = /^(https?:|mailto:)/i;

/** Undo the three escapes Slack uses in text. The ampersand goes last, so `&amp;lt;` stays `&lt;`. */
export const unescape = (text) => text.replaceAll("&lt;", "<").replaceAll("&gt;", ">").replaceAll("&amp;", "&");

/** Escape typed text as Slack's own client does before it sends. */
export const escape = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

/** A person, as a pill. */
export function UserPill({ id, label }) {
  const { users, me } = useContext(Directory);
  const name = users.get(id)?.name ?? label ?? id;
  return html`<span class=${`pill ${id === me ? "pill-me" : ""}`} data-user=${id}>@${name}</span>`;
}

function ChannelPill({ id, label }) {
  const { channels } = useContext(Directory);
  return html`<span class="pill">#${channels.get(id)?.name ?? label ?? id}</span>`;
}

/** A link that may leave the page, or its bare label when the address is of a kind a chat should not open. */
export function Link({ url, children }) {
  if (!LINK.test(url)) return html`<span>${children}</span>`;
  return html`<a href=${url} target="_blank" rel="noopener noreferrer">${children}</a>`;
}

/** An emoji by its short name; unknown names are shown as typed. */
export function Emoji({ name }) {
  const character = emoji(name);
  if (character === null) return `:${name}:`;
  return html`<span class="emoji" role="img" aria-label=${name.replaceAll("_", " ")} title=${`:${name}:`}>${drawing(name) ?? character}</span>`;
}

/** Plain words, with their entities undone and their emoji drawn. */
const words = (text) => cutAtEmoji(unescape(text)).map((part, n) => (n % 2 ? html`<${Emoji} name=${part} />` : part));

/** The age of a time in words, as Slack shows `{ago}`. */
function ago(when) {
  const minutes = Math.max(0, Math.round((Date.now() - when.getTime()) / 60000));
  const [count, unit] = minutes < 60 ? [minutes, "minute"] : minutes < 1440 ? [Math.floor(minutes / 60), "hour"] : [Math.floor(minutes / 1440), "day"];
  return new Intl.RelativeTimeFormat(undefined, { numeric: "auto" }).format(-count, unit);
}

const DAY_MS = 86_400_000;
const midnight = (when) => new Date(when).setHours(0, 0, 0, 0);

/** A day in the reader's words: "today" and its neighbours by name where the format is a "pretty" one. */
function dayOf(when, name) {
  const days = Math.round((midnight(when) - midnight(Date.now())) / DAY_MS);
  if (name.includes("_pretty") && Math.abs(days) <= 1) return ["yesterday", "today", "tomorrow"][days + 1];
  return when.toLocaleDateString(undefined, { year: "numeric", month: "short", day: "numeric" });
}

function date(body) {
  const [, stamp, format, ...rest] = body.split("^");
  const fallback = rest.join("^").split("|").pop();
  const when = new Date(Number(stamp) * 1000);
  if (!format || Number.isNaN(when.getTime())) return unescape(fallback ?? "");
  const time = when.toLocaleTimeString(undefined, { hour: "numeric", minute: "2-digit" });
  return format.split("|")[0].replace(/\{ago\}/g, () => ago(when)).replace(/\{date[a-z_]*\}/g, (name) => dayOf(when, name)).replace(/\{time[a-z_]*\}/g, time);
}

/** What stands between `<` and `>`: a mention, a channel, a special word or a link. */
function reference(body) {
  const bar = body.indexOf("|");
  const target = bar < 0 ? body : body.slice(0, bar);
  const label = bar < 0 ? undefined : unescape(body.slice(bar + 1));
  if (target.startsWith("@")) return html`<${UserPill} id=${target.slice(1)} label=${label} />`;
  if (target.startsWith("#")) return html`<${ChannelPill} id=${target.slice(1)} label=${label} />`;
  if (target.startsWith("!date^")) return date(body.slice(1));
  if (target.startsWith("!")) return html`<span class="pill">@${label ?? target.slice(1).split("^")[0]}</span>`;
  const url = unescape(target);
  return html`<${Link} url=${url}>${label ?? url.replace(/^mailto:/i, "")}</${Link}>`;
}

/**
 * One line as nodes. Linear in its length: a closing mark is looked for once per kind, because a search that
 * failed from here fails from anywhere further on.
 */
function inline(text) {
  const nodes = [];
  const hopeless = new Set();
  let plain = "";
  const flush = () => {
    if (plain) nodes.push(...words(plain));
    plain = "";
  };
  const closer = (mark, from) => {
    if (hopeless.has(mark)) return -1;
    for (let at = text.indexOf(mark, from); at >= 0; at = text.indexOf(mark, at + 1)) {
      if (mark === "`") return at;
      if (text[at - 1] !== " " && at > from && !WORD.test(text[at + 1] ?? " ")) return at;
    }
    hopeless.add(mark);
    return -1;
  };

  for (let at = 0; at < text.length; at += 1) {
    const mark = text[at];
    if (mark === "<") {
      const end = text.indexOf(">", at);
      if (end > at + 1) {
        flush();
        nodes.push(reference(text.slice(at + 1, end)));
        at = end;
        continue;
      }
    } else if (mark === "`") {
      const end = closer(mark, at + 1);
      if (end > at + 1) {
        flush();
        nodes.push(html`<code>${unescape(text.slice(at + 1, end))}</code>`);
        at = end;
        continue;
      }
    } else if (mark === ":") {
      const name = /^:([a-z0-9_+-]{1,40}):/.exec(text.slice(at, at + 42))?.[1];
      if (name && emoji(name) !== null) {
        flush();
        nodes.push(html`<${Emoji} name=${name} />`);
        at += name.length + 1;
        continue;
      }
    } else if (TAGS[mark] && !WORD.test(text[at - 1] ?? " ") && (text[at + 1] ?? " ") !== " ") {
      const end = closer(mark, at + 1);
      if (end > at + 1) {
        flush();
        nodes.push(html`<${TAGS[mark]}>${inline(text.slice(at + 1, end))}</${TAGS[mark]}>`);
        at = end;
        continue;
      }
    }
    plain += mark;
  }
  flush();
  return nodes;
}

/** Lines with breaks between them; runs of `>` lines become one quotation. */
function lines(text) {
  const out = [];
  let quoted = [];
  let fresh = true; // at the start of a visual line, so no break is due
  const endQuote = () => {
    if (!quoted.length) return;
    out.push(html`<blockquote>${quoted.map((line, n) => [n ? html`<br />` : null, ...inline(line)])}</blockquote>`);
    quoted = [];
    fresh = true;
  };
  for (const line of text.split("\n")) {
    const quote = /^(?:>|&gt;) ?/.exec(line);
    if (quote) {
      quoted.push(line.slice(quote[0].length));
      continue;
    }
    endQuote();
    if (!fresh) out.push(html`<br />`);
    out.push(...inline(line));
    fresh = false;
  }
  endQuote();
  return out;
}

/** A text in mrkdwn. */
export function Mrkdwn({ text }) {
  const parts = (text ?? "").split("```");
  // An odd number of fences leaves the last one as it was typed.
  if (parts.length % 2 === 0) parts.push(`${parts.length > 1 ? "```" : ""}${parts.pop()}`);
  const nodes = parts.map((part, n) => {
    if (n % 2 === 1 && n < parts.length - 1) return html`<pre>${unescape(part.replace(/^\n|\n$/g, ""))}</pre>`;
    const bare = part.replace(n ? /^\n/ : "", "").replace(n < parts.length - 1 ? /\n$/ : "", "");
    return bare ? lines(bare) : null;
  });
  return html`<span class="mrkdwn">${nodes}</span>`;
}

/** A plain text object: emoji are the only thing it knows. */
export function Plain({ text, emoji: wanted = true }) {
  if (!wanted) return html`<span class="mrkdwn">${unescape(text ?? "")}</span>`;
  const parts = (text ?? "").split(/(:[a-z0-9_+-]{1,40}:)/);
  return html`<span class="mrkdwn">
    ${parts.map((part, n) => (n % 2 ? html`<${Emoji} name=${part.slice(1, -1)} />` : words(part)))}
  </span>`;
}

/** A text object of either type. */
export function Text({ text }) {
  if (!text) return null;
  if (text.type === "mrkdwn") return html`<${Mrkdwn} text=${text.text} />`;
  return html`<${Plain} text=${text.text} emoji=${text.emoji !== false} />`;
}
