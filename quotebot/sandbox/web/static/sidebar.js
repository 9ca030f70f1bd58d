// The left rail: which workspace this is, who you are in it, and where you can go.

import { html, useLayoutEffect, useRef, useState } from "./vendor/standalone.module.js";
import { Avatar } from "./avatar.js";
import { called } from "./directory.js";
import { Icon } from "./icons.js";

/** What the name does not already say about a person. */
function tagOf(user) {
  if (user.is_guest) return "guest account";
  if (user.is_external) return "from another organization";
  return "";
}

function Badge({ count }) {
  return count > 0 && html`<span class="badge" aria-label=${`${count} new`}>${count > 99 ? "99+" : count}</span>`;
}

/** Who you are. A list to choose from; each person carries the number of messages that person has not seen. */
function PersonSelect({ people, me, unreadOf, pointed, onChoose }) {
  const [open, setOpen] = useState(false);
  const self = useRef(null);
  const current = people.find((user) => user.id === me);
  const waiting = people.reduce((sum, user) => sum + (user.id === me ? 0 : unreadOf(user.id)), 0);

  useLayoutEffect(() => {
    if (!open) return undefined;
    self.current.querySelector("[aria-selected=true]")?.focus();
    const outside = (event) => !self.current.contains(event.target) && setOpen(false);
    document.addEventListener("pointerdown", outside);
    return () => document.removeEventListener("pointerdown", outside);
  }, [open]);

  function close() {
    setOpen(false);
    self.current.querySelector("[data-testid=person-select]").focus();
  }
  function onKeyDown(event) {
    if (!open) return;
    const rows = [...self.current.querySelectorAll("[role=option]")];
    const at = rows.indexOf(document.activeElement);
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") {
      event.stopPropagation();
      close();
    } else if (step) {
      event.preventDefault();
      rows[(at + step + rows.length) % rows.length].focus();
    }
  }
  const choose = (id) => {
    onChoose(id);
    close();
  };

  return html`<div class="person" ref=${self} onKeyDown=${onKeyDown}>
    <button
      type="button"
      class=${`person-button ${pointed ? "pointed" : ""}`}
      data-testid="person-select"
      data-person=${me}
      aria-haspopup="listbox"
      aria-expanded=${open}
      aria-label=${`You are ${called(current)}. Switch person`}
      onClick=${() => setOpen(!open)}
    >
      <${Avatar} id=${me} name=${called(current)} size="small" />
      <span class="person-words"><span class="person-label">You are</span><b>${called(current)}</b></span>
      <${Badge} count=${waiting} /><${Icon} name="chevron" size=${18} />
    </button>
    ${open &&
    html`<div class="person-list" role="listbox" aria-label="Switch person" data-testid="person-list">
      <p class="person-note">Everything you do is done as this person.</p>
      ${people.map(
        (user) => html`<button type="button" key=${user.id} role="option" data-person=${user.id} aria-selected=${user.id === me} onClick=${() => choose(user.id)}>
          <${Avatar} id=${user.id} name=${called(user)} size="small" />
          <span class="person-words"><b>${called(user)}</b><span class="person-tag">${[`@${user.name}`, tagOf(user)].filter(Boolean).join(" · ")}</span></span>
          <${Badge} count=${user.id === me ? 0 : unreadOf(user.id)} />
          ${user.id === me && html`<${Icon} name="check" size=${18} />`}
        </button>`,
      )}
    </div>`}
  </div>`;
}

function Row({ channel, here, fresh, badge, onOpen }) {
  const { other } = channel;
  return html`<button
    type="button"
    class=${`row ${fresh ? "unread" : ""}`}
    data-testid="channel"
    data-channel=${channel.id}
    aria-current=${here ? "page" : undefined}
    onClick=${onOpen}
  >
    ${channel.isIm ? html`<${Avatar} id=${other?.id} name=${channel.name} app=${other?.is_bot} size="tiny" />` : html`<${Icon} name="hash" size=${18} />`}
    <span class="row-name">${channel.name}</span>
    ${other?.is_bot && html`<span class="app-badge">APP</span>`}
    ${channel.isShared && html`<span class="app-badge" title="Shared with another organization">SHARED</span>`}
    <${Badge} count=${badge} />
  </button>`;
}

function Group({ title, channels, me, current, unread, onOpen }) {
  if (!channels.length) return null;
  return html`<section class="group">
    <h2>${title}</h2>
    ${channels.map(
      (channel) => html`<${Row}
        key=${channel.id}
        channel=${channel}
        here=${channel.id === current}
        fresh=${unread.fresh(me, channel.id)}
        badge=${unread.badge(me, channel.id)}
        onOpen=${() => onOpen(channel.id)}
      />`,
    )}
  </section>`;
}

/** The rail. `unread` tells what was not seen yet, by whom; `pointed` whether the guide asks to switch person. */
export function Sidebar({ team, people, me, channels, current, unread, pointed, onPerson, onOpen, shown }) {
  const apps = channels.filter((channel) => channel.other?.is_bot);
  const direct = channels.filter((channel) => channel.isIm && !channel.other?.is_bot);
  const rooms = channels.filter((channel) => !channel.isIm);
  const shared = { me, current, unread, onOpen };
  return html`<nav class=${`sidebar ${shown ? "shown" : ""}`} aria-label="Workspace">
    <header class="workspace">
      <span class="workspace-mark" aria-hidden="true">${[...(team.name || "S")][0]}</span>
      <span class="workspace-words"><b>${team.name}</b><span>Local sandbox</span></span>
    </header>
    <${PersonSelect} people=${people} me=${me} unreadOf=${unread.person} pointed=${pointed} onChoose=${onPerson} />
    <div class="rail">
      <${Group} title="Channels" channels=${rooms} ...${shared} />
      <${Group} title="Direct messages" channels=${direct} ...${shared} />
      <${Group} title="Apps" channels=${apps} ...${shared} />
    </div>
  </nav>`;
}
