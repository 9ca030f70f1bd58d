// Block Kit's interactive elements. A click is sent once, shows that it is under way, and says so when nobody answered.

import { html, useContext, useLayoutEffect, useRef, useState } from "./vendor/standalone.module.js";
import { acknowledged } from "./api.js";
import { ConfirmDialog } from "./dialogs.js";
import { Directory } from "./directory.js";
import { Choice, Options, Typed, canHold, isGroup } from "./fields.js";
import { Icon } from "./icons.js";
import { Lookup } from "./lookup.js";
import { Link, Text } from "./mrkdwn.js";
import { place } from "./place.js";
import { initialOf } from "./values.js";

/**
 * The life of one click: a question first where the element asks for one, then busy until the acknowledgement.
 * Returns {busy, failed, start(value, undo), dialog}.
 */
function useClick(element, surface) {
  const { act } = useContext(Directory);
  const [phase, setPhase] = useState("idle"); // idle | asking | busy | failed
  const pending = useRef(null);
  const unasked = useRef(null); // what a "no" to the question undoes
  const sending = useRef(false); // set at once, unlike the phase, so that a second click of the same instant is stopped too

  async function send(value) {
    sending.current = true;
    setPhase("busy");
    const answer = await act({ ...surface, action_id: element.action_id, ...(value === undefined ? {} : { value }) });
    sending.current = false;
    // A click that reached the world unanswered is marked in the message itself; this page speaks for the others.
    const told = answer.request_id && surface.message_ts;
    setPhase(acknowledged(answer) || told ? "idle" : "failed");
  }
  function start(value, undo) {
    if (sending.current || phase === "asking") return;
    pending.current = value;
    unasked.current = undo;
    if (element.confirm) setPhase("asking");
    else send(value);
  }
  function stop() {
    setPhase("idle");
    unasked.current?.();
  }
  const dialog =
    phase === "asking" && html`<${ConfirmDialog} confirm=${element.confirm} onYes=${() => send(pending.current)} onNo=${stop} />`;
  return { busy: phase === "busy", failed: phase === "failed", start, dialog };
}

function Unanswered() {
  const words = "The app did not answer in time. Try again.";
  return html`<span class="unanswered" role="alert" data-testid="unanswered"><${Icon} name="alert" size=${16} /> ${words}</span>`;
}

/** Whether the guide means this button. */
const isPointed = (pointed, element, surface) =>
  pointed.some((each) => each.channel === surface.channel && each.ts === surface.message_ts && each.action_id === element.action_id && each.value === element.value);

function Button({ element, surface }) {
  const { pointed } = useContext(Directory);
  const { busy, failed, start, dialog } = useClick(element, surface);
  const meant = isPointed(pointed, element, surface);
  const look = `button ${element.style ?? ""} ${surface.view_id ? "" : "small"} ${meant ? "pointed" : ""}`;
  const onClick = () => {
    if (element.url) window.open(element.url, "_blank", "noopener,noreferrer");
    start(element.value);
  };
  return html`<span class="element">
    <button
      type="button"
      class=${look}
      disabled=${busy}
      data-busy=${busy || undefined}
      data-action-id=${element.action_id}
      data-value=${element.value}
      data-pointed=${meant || undefined}
      aria-label=${element.accessibility_label}
      onClick=${onClick}
    ><${Text} text=${element.text} /></button>
    ${failed && html`<${Unanswered} />`} ${dialog}
  </span>`;
}

/** A choice or a date that is sent as soon as it is made. What is typed is sent with Enter. */
function Clickable({ element, surface }) {
  const { busy, failed, start, dialog } = useClick(element, surface);
  const [value, setValue] = useState(initialOf(element));
  const onChange = (chosen) => {
    const before = value;
    setValue(chosen);
    start(chosen, () => setValue(before));
  };
  const id = `${surface.message_ts ?? surface.view_id}-${surface.block_id}-${element.action_id}`;
  const label = element.placeholder?.text ?? { datepicker: "Date", timepicker: "Time" }[element.type] ?? "Choose";
  const control = element.type === "external_select" ? Lookup : isGroup(element) ? Options : ["datepicker", "timepicker"].includes(element.type) ? Typed : Choice;
  return html`<span class="element">
    <${control} element=${element} value=${value} onChange=${onChange} id=${id} disabled=${busy} aria-label=${label} ...${control === Lookup ? { surface } : {}} />
    ${failed && html`<${Unanswered} />`} ${dialog}
  </span>`;
}

function Overflow({ element, surface }) {
  const { busy, failed, start, dialog } = useClick(element, surface);
  const [open, setOpen] = useState(false);
  const self = useRef(null);
  useLayoutEffect(() => {
    if (!open) return undefined;
    place(self.current.querySelector("[role=menu]"));
    self.current.querySelector("[role=menuitem]")?.focus();
    const outside = (event) => !self.current.contains(event.target) && setOpen(false);
    document.addEventListener("pointerdown", outside);
    return () => document.removeEventListener("pointerdown", outside);
  }, [open]);
  function close() {
    setOpen(false);
    self.current.querySelector("button").focus();
  }
  function onKeyDown(event) {
    if (!open) return;
    const rows = [...self.current.querySelectorAll("[role=menuitem]")];
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (event.key === "Escape") {
      event.stopPropagation();
      close();
    } else if (step) {
      event.preventDefault();
      rows[(rows.indexOf(document.activeElement) + step + rows.length) % rows.length].focus();
    }
  }
  const pick = (each) => {
    close();
    if (each.url) window.open(each.url, "_blank", "noopener,noreferrer");
    start(each.value);
  };
  return html`<span class="element overflow" ref=${self} onKeyDown=${onKeyDown}>
    <button
      type="button"
      class="button small"
      aria-label="More actions"
      aria-haspopup="menu"
      aria-expanded=${open}
      disabled=${busy}
      data-busy=${busy || undefined}
      data-action-id=${element.action_id}
      onClick=${() => setOpen(!open)}
    ><${Icon} name="dots" size=${18} /></button>
    ${open &&
    html`<span class="menu" role="menu">
      ${element.options.map(
        (each) => html`<button type="button" role="menuitem" data-value=${each.value} onClick=${() => pick(each)}><${Text} text=${each.text} /></button>`,
      )}
    </span>`}
    ${failed && html`<${Unanswered} />`} ${dialog}
  </span>`;
}

/** An image of this page's own origin or inside the message; any other address becomes a link, as nothing foreign may load. */
export function Picture({ url, alt }) {
  const here = url?.startsWith("data:image/") || url?.startsWith("/") || url?.startsWith(`${window.location.origin}/`);
  if (here) return html`<img src=${url} alt=${alt ?? ""} />`;
  return html`<${Link} url=${url ?? ""}>${alt || "image"}</${Link}>`;
}

/** An element of an actions block or an accessory. */
export function Element({ element, surface }) {
  switch (element?.type) {
    case "button":
    case "workflow_button":
      return html`<${Button} element=${element} surface=${surface} />`;
    case "overflow":
      return html`<${Overflow} element=${element} surface=${surface} />`;
    case "image":
      return html`<${Picture} url=${element.image_url} alt=${element.alt_text} />`;
    default:
      if (element && canHold(element)) return html`<${Clickable} element=${element} surface=${surface} />`;
      return html`<span class="hint">This page cannot show a ${element?.type} element.</span>`;
  }
}
