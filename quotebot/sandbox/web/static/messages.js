// A conversation: messages in order, grouped by author and day, with threads, files and what only one person may see.

import { html, useContext, useLayoutEffect, useRef, useState } from "./vendor/standalone.module.js";
import { post } from "./api.js";
import { Avatar } from "./avatar.js";
import { Blocks } from "./blocks.js";
import { FilePreview } from "./dialogs.js";
import { Directory, called } from "./directory.js";
import { Icon } from "./icons.js";
import { Emoji, Mrkdwn } from "./mrkdwn.js";
import { place } from "./place.js";

const GROUP_SECONDS = 300;
const NEAR_END_PIXELS = 80;

/** Who speaks for the workspace itself. */
export const SLACKBOT = "USLACKBOT";

const when = (ts) => new Date(Number(ts) * 1000);
const clock = (ts) => when(ts).toLocaleTimeString(undefined, { hour: "numeric", minute: "2-digit" });
const dayOf = (ts) => when(ts).toDateString();

function dayName(ts) {
  const day = when(ts);
  const ago = Math.round((new Date().setHours(0, 0, 0, 0) - new Date(day).setHours(0, 0, 0, 0)) / 86_400_000);
  if (ago === 0) return "Today";
  if (ago === 1) return "Yesterday";
  return day.toLocaleDateString(undefined, { weekday: "long", month: "long", day: "numeric" });
}

/** Who wrote a message: {id, name, app, slackbot}. */
function authorOf(message, users) {
  const user = users.get(message.user);
  if (message.user === SLACKBOT) return { id: SLACKBOT, name: "Slackbot", app: false, slackbot: true };
  const app = Boolean(message.bot_id) || Boolean(user?.is_bot);
  const alias = message.username && message.username !== user?.name ? message.username : null;
  return { id: message.bot_id ?? message.user, name: alias ?? called(user), app, slackbot: false };
}

const UNANSWERED = {
  operation_timeout: "The app did not answer in time. Try again.",
  dispatch_failed: "The app could not be reached. Try again.",
};

/** A file's address on this very page's origin, by whatever name the world was opened. */
function addressOf(file) {
  const { pathname, search } = new URL(file.url, window.location.href);
  return pathname + search;
}

function sizeOf(bytes) {
  if (!bytes) return "";
  if (bytes < 1000) return `${bytes} B`;
  return bytes < 1e6 ? `${Math.round(bytes / 1000)} kB` : `${(bytes / 1e6).toFixed(1)} MB`;
}

function File({ file }) {
  const [looking, setLooking] = useState(false);
  const kind = (file.name.split(".").length > 1 ? file.name.split(".").pop() : "file").toUpperCase().slice(0, 4);
  const pdf = file.mimetype === "application/pdf";
  return html`<div class="file" data-testid="file" data-file-id=${file.id}>
    <a class="file-link" href=${addressOf(file)} target="_blank" rel="noopener" data-testid="file-link">
      <span class=${`file-kind ${pdf ? "pdf" : ""}`} aria-hidden="true">${kind}</span>
      <span class="file-words">
        <span class="file-title">${file.title || file.name}</span>
        <span class="file-note">${[pdf ? "PDF" : file.mimetype, sizeOf(file.size)].filter(Boolean).join(" · ")}</span>
      </span>
      <${Icon} name="out" size=${16} />
    </a>
    ${pdf && html`<button type="button" class="link-button" data-testid="file-preview-open" onClick=${() => setLooking(true)}>Preview</button>`}
    ${looking && html`<${FilePreview} title=${file.title || file.name} address=${addressOf(file)} onClose=${() => setLooking(false)} />`}
  </div>`;
}

/** What the app shows below a link in somebody's message. */
function Preview({ attachment, message }) {
  if (!attachment.blocks?.length) return null;
  return html`<div class="link-preview" data-testid="link-preview">
    <${Blocks} blocks=${attachment.blocks} surface=${{ channel: message.channel, message_ts: message.ts }} />
  </div>`;
}

function Body({ message }) {
  const { users } = useContext(Directory);
  const blocks = message.blocks?.length ? message.blocks : null;
  return html`<div class="message-body">
    ${blocks
      ? html`<${Blocks} blocks=${blocks} surface=${{ channel: message.channel, message_ts: message.ts }} />`
      : message.text && html`<${Mrkdwn} text=${message.text} />`}
    ${message.edited && html`<span class="edited" data-testid="edited">(edited)</span>`}
    ${message.error &&
    html`<p class="unanswered" role="alert" data-testid="unanswered"><${Icon} name="alert" size=${16} /> ${UNANSWERED[message.error] ?? message.error}</p>`}
    ${(message.attachments ?? []).map((each) => html`<${Preview} key=${each.app_unfurl_url} attachment=${each} message=${message} />`)}
    ${(message.files ?? []).map((file) => html`<${File} key=${file.id} file=${file} />`)}
  </div>`;
}

/** What others put under a message, with whom. */
function Reactions({ reactions }) {
  const { users } = useContext(Directory);
  const given = Object.entries(reactions ?? {});
  if (!given.length) return null;
  return html`<p class="reactions">
    ${given.map(([name, ids]) => html`<span key=${name} class="reaction" title=${ids.map((id) => called(users.get(id))).join(", ")}><${Emoji} name=${name} /> ${ids.length}</span>`)}
  </p>`;
}

/** The menu of what the app offers to do with a message, as its manifest says. */
function Shortcuts({ message }) {
  const { shortcuts, me } = useContext(Directory);
  const [open, setOpen] = useState(false);
  const self = useRef(null);
  const offered = shortcuts.filter((each) => each.type === "message");
  useLayoutEffect(() => {
    if (!open) return undefined;
    place(self.current.querySelector("[role=menu]"));
    self.current.querySelector("[role=menuitem]")?.focus();
    const outside = (event) => !self.current.contains(event.target) && setOpen(false);
    document.addEventListener("pointerdown", outside);
    return () => document.removeEventListener("pointerdown", outside);
  }, [open]);
  if (!offered.length) return null;
  function onKeyDown(event) {
    if (event.key !== "Escape" || !open) return;
    event.stopPropagation();
    setOpen(false);
    self.current.querySelector("button").focus();
  }
  const pick = ({ callback_id: callbackId }) => {
    setOpen(false);
    self.current.querySelector("button").focus();
    post("shortcut", { user: me, callback_id: callbackId, channel: message.channel, message_ts: message.ts });
  };
  return html`<span class="overflow" ref=${self} onKeyDown=${onKeyDown}>
    <button type="button" class="icon-button" title="Shortcuts" aria-label="Shortcuts for this message" aria-haspopup="menu" aria-expanded=${open} data-testid="more-actions" onClick=${() => setOpen(!open)}>
      <${Icon} name="dots" />
    </button>
    ${open &&
    html`<span class="menu right" role="menu">
      ${offered.map((each) => html`<button type="button" role="menuitem" key=${each.callback_id} data-callback=${each.callback_id} title=${each.description} onClick=${() => pick(each)}>${each.name}</button>`)}
    </span>`}
  </span>`;
}

function Replies({ replies, onOpen }) {
  const { users } = useContext(Directory);
  const authors = [...new Map(replies.map((reply) => authorOf(reply, users)).map((author) => [author.id, author])).values()];
  return html`<button type="button" class="replies" data-testid="replies" onClick=${onOpen}>
    ${authors.slice(0, 4).map((author) => html`<${Avatar} key=${author.id} ...${author} size="tiny" />`)}
    <b>${replies.length === 1 ? "1 reply" : `${replies.length} replies`}</b>
    <span class="replies-last">Last reply ${dayName(replies.at(-1).ts).toLowerCase()} at ${clock(replies.at(-1).ts)}</span>
  </button>`;
}

/** One message. `compact` leaves the author out; without `onThread` it offers no thread. */
export function Message({ message, compact, replies = [], onThread }) {
  const { users } = useContext(Directory);
  const author = authorOf(message, users);
  const time = html`<time datetime=${when(message.ts).toISOString()} title=${when(message.ts).toLocaleString()}>${clock(message.ts)}</time>`;
  const canReply = onThread && !message.ephemeral_for;
  return html`<article
    class=${`message ${compact ? "compact" : ""} ${message.ephemeral_for ? "ephemeral" : ""}`}
    data-testid="message"
    data-ts=${message.ts}
    aria-label=${`${author.name}, ${clock(message.ts)}`}
  >
    ${message.ephemeral_for &&
    html`<p class="only-you" data-testid="only-you"><${Icon} name="eye" size=${14} /> Only visible to you</p>`}
    <div class="gutter">${compact ? time : html`<${Avatar} ...${author} />`}</div>
    <div class="message-main">
      ${!compact &&
      html`<header class="message-head">
        <b class="author">${author.name}</b>${author.app && html`<span class="app-badge">APP</span>`}${time}
      </header>`}
      <${Body} message=${message} />
      <${Reactions} reactions=${message.reactions} />
      ${canReply && replies.length > 0 && html`<${Replies} replies=${replies} onOpen=${onThread} />`}
    </div>
    ${canReply &&
    html`<div class="message-tools">
      <button type="button" class="icon-button" title="Reply in thread" aria-label="Reply in thread" data-testid="reply-in-thread" onClick=${onThread}>
        <${Icon} name="reply" />
      </button>
      <${Shortcuts} message=${message} />
    </div>`}
  </article>`;
}

function follows(message, before, users) {
  if (!before || message.ephemeral_for || before.ephemeral_for) return false;
  const near = Number(message.ts) - Number(before.ts) < GROUP_SECONDS && dayOf(message.ts) === dayOf(before.ts);
  return near && authorOf(message, users).id === authorOf(before, users).id && authorOf(message, users).name === authorOf(before, users).name;
}

/**
 * A scrolling list that stays at its end while the reader is there. `threads` maps a root's ts to its replies,
 * `onThread(ts)` opens one, `intro` stands above the first message, a line above the first for which `isNews` holds.
 */
export function Messages({ messages, threads, onThread, intro, isNews, days = true, testid }) {
  const { users } = useContext(Directory);
  const list = useRef(null);
  const atEnd = useRef(true);
  const onScroll = () => {
    if (!list.current) return; // a last scroll after it was taken away
    const { scrollHeight, scrollTop, clientHeight } = list.current;
    atEnd.current = scrollHeight - scrollTop - clientHeight < NEAR_END_PIXELS;
  };
  useLayoutEffect(() => {
    if (atEnd.current) list.current.scrollTop = list.current.scrollHeight;
  });
  const firstNew = isNews && messages.find(isNews);
  return html`<div class="messages" ref=${list} onScroll=${onScroll} data-testid=${testid} role="log" aria-live="polite" tabindex="0">
    <div class="messages-inner">
      ${intro}
      ${messages.flatMap((message, n) => {
        const before = messages[n - 1];
        const newDay = days && (!before || dayOf(before.ts) !== dayOf(message.ts));
        return [
          newDay && html`<div class="day" key=${`day-${message.ts}`}><span>${dayName(message.ts)}</span></div>`,
          message === firstNew && html`<div class="news" key="news" role="separator" data-testid="news"><span>New</span></div>`,
          html`<${Message}
            key=${message.key ?? `${message.ts}-${message.ephemeral_for ?? ""}`}
            message=${message}
            compact=${!newDay && message !== firstNew && follows(message, before, users)}
            replies=${threads?.get(message.ts)}
            onThread=${onThread && (() => onThread(message.ts))}
          />`,
        ];
      })}
    </div>
  </div>`;
}
