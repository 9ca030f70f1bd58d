// Where a person types: slash commands with completion, everything else as a message.

import { html, useContext, useLayoutEffect, useRef, useState } from "./vendor/standalone.module.js";
import { Directory } from "./directory.js";
import { Icon } from "./icons.js";
import { escape } from "./mrkdwn.js";

/** What a newcomer can send as it stands. */
export const EXAMPLE = "/quote new for Acme: 150 pro, 150 sso, 1 support; term 12m; discount 15%";

function suggestionsFor(draft, verbs) {
  if (!draft.startsWith("/") || draft.includes("\n")) return [];
  const typed = draft.trimStart().replace(/\s+/g, " ");
  return verbs.filter(({ text }) => text.startsWith(typed) && text !== typed.trimEnd());
}

/** Typed text as the protocol wants it: escaped, with `@name` of a known person as a mention. */
function encode(text, users) {
  const ids = new Map([...users.values()].map((user) => [user.name.toLowerCase(), user.id]));
  return escape(text).replace(/(^|[\s(])@([\w.-]*\w)/g, (whole, before, name) => {
    const id = ids.get(name.toLowerCase());
    return id ? `${before}<@${id}>` : whole;
  });
}

function Suggestions({ items, chosen, onPick }) {
  useLayoutEffect(() => document.getElementById(`suggestion-${chosen}`)?.scrollIntoView({ block: "nearest" }), [chosen]);
  return html`<ul class="suggestions" role="listbox" id="suggestions" data-testid="suggestions">
    ${items.map(
      (item, n) => html`<li
        key=${item.text}
        id=${`suggestion-${n}`}
        role="option"
        aria-selected=${n === chosen}
        onMouseDown=${(event) => {
          event.preventDefault(); // keeps the caret in the composer
          onPick(item);
        }}
      >
        <span><b>${item.text}</b> <span class="suggestion-hint">${item.hint}</span></span>
        <span class="suggestion-about">${item.about}</span>
      </li>`,
    )}
  </ul>`;
}

/**
 * A composer. `commands` are those of the app's manifest, `verbs` what is completed: [{text, hint, about}]. `onSlash(command, text)` and `onMessage(text)` send; `offer` shows the example as a chip.
 * The draft is the caller's, so that it survives a change of channel: `draft`, `onDraft(text)`.
 */
export function Composer({ placeholder, commands, verbs, draft, onDraft, onSlash, onMessage, offer, focused, testid = "composer" }) {
  const { users } = useContext(Directory);
  const box = useRef(null);
  const [moved, setMoved] = useState(null);
  const [closed, setClosed] = useState(false);

  const items = closed ? [] : suggestionsFor(draft, verbs);
  // A bare command is a whole one: nothing is chosen for it until an arrow key says so.
  const chosen = Math.min(moved ?? (commands.some(({ command }) => command === draft.trim()) ? -1 : 0), items.length - 1);

  useLayoutEffect(() => {
    if (focused) box.current.focus();
  }, []);
  useLayoutEffect(() => {
    box.current.style.height = "auto";
    box.current.style.height = `${Math.min(box.current.scrollHeight, 200)}px`;
  }, [draft]);

  function write(text) {
    onDraft(text);
    setMoved(null);
    setClosed(false);
    box.current.focus();
  }
  function send() {
    const text = draft.trim();
    if (!text) return;
    onDraft("");
    setMoved(null);
    const slash = /^(\/\S+)\s*([\s\S]*)$/.exec(text);
    if (slash) onSlash(slash[1], encode(slash[2], users));
    else onMessage(encode(text, users));
  }
  function onKeyDown(event) {
    if (event.isComposing) return;
    const { key } = event;
    if (items.length && (key === "ArrowDown" || key === "ArrowUp")) {
      event.preventDefault();
      setMoved((chosen + (key === "ArrowDown" ? 1 : items.length - 1 + (chosen < 0 ? 1 : 0))) % items.length);
    } else if (items.length && (key === "Tab" || (key === "Enter" && chosen >= 0)) && !event.shiftKey) {
      event.preventDefault();
      write(`${items[Math.max(chosen, 0)].text} `);
    } else if (items.length && key === "Escape") {
      event.preventDefault();
      event.stopPropagation();
      setClosed(true);
    } else if (key === "Enter" && !event.shiftKey) {
      event.preventDefault();
      send();
    }
  }

  return html`<div class="composer-area">
    ${offer &&
    !draft &&
    html`<button type="button" class="chip" data-testid="example-chip" onClick=${() => write(EXAMPLE)}>
      <${Icon} name="bolt" size=${16} /><span>Try an example: a quote for <b>Acme</b>, 15% discount</span>
    </button>`}
    <div class="composer">
      ${items.length > 0 && html`<${Suggestions} items=${items} chosen=${chosen} onPick=${(item) => write(`${item.text} `)} />`}
      <textarea
        ref=${box}
        rows="1"
        data-testid=${testid}
        aria-label=${placeholder}
        placeholder=${placeholder}
        value=${draft}
        role="combobox"
        aria-expanded=${items.length > 0}
        aria-controls="suggestions"
        aria-activedescendant=${chosen >= 0 && items.length ? `suggestion-${chosen}` : undefined}
        aria-autocomplete="list"
        spellcheck="false"
        onInput=${(event) => {
          onDraft(event.target.value);
          setMoved(null);
          setClosed(false);
        }}
        onKeyDown=${onKeyDown}
      ></textarea>
      <div class="composer-bar">
        <span class="composer-hint"><kbd>Enter</kbd> to send <kbd>Shift</kbd> + <kbd>Enter</kbd> for a new line</span>
        <button type="button" class="send" data-testid=${testid === "composer" ? "send" : `${testid}-send`} aria-label="Send now" disabled=${!draft.trim()} onClick=${send}>
          <${Icon} name="send" size=${18} />
        </button>
      </div>
    </div>
  </div>`;
}
