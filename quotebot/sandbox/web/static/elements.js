// Block Kit's interactive elements. A click is sent once, shows that it is under way, and says so when nobody answered.

import { html, useContext, useRef, useState } from "./vendor/standalone.module.js";
import { acknowledged } from "./api.js";
import { ConfirmDialog } from "./dialogs.js";
import { Directory } from "./directory.js";
import { Icon } from "./icons.js";
import { Link, Text, unescape } from "./mrkdwn.js";

/**
 * The life of one click: a question first where the element asks for one, then busy until the acknowledgement.
 * Returns {busy, failed, start(value), dialog}.
 */
function useClick(element, surface) {
  const { act } = useContext(Directory);
  const [phase, setPhase] = useState("idle"); // idle | asking | busy | failed
  const pending = useRef(null);
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
  function start(value) {
    if (sending.current || phase === "asking") return;
    pending.current = value;
    if (element.confirm) setPhase("asking");
    else send(value);
  }
  const dialog =
    phase === "asking" &&
    html`<${ConfirmDialog} confirm=${element.confirm} onYes=${() => send(pending.current)} onNo=${() => setPhase("idle")} />`;
  return { busy: phase === "busy", failed: phase === "failed", start, dialog };
}

function Unanswered() {
  const words = "The app did not answer in time. Try again.";
  return html`<span class="unanswered" role="alert" data-testid="unanswered"><${Icon} name="alert" size=${16} /> ${words}</span>`;
}

function Button({ element, surface }) {
  const { busy, failed, start, dialog } = useClick(element, surface);
  const look = `button ${element.style ?? ""} ${surface.view_id ? "" : "small"}`;
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
      aria-label=${element.accessibility_label}
      onClick=${onClick}
    ><${Text} text=${element.text} /></button>
    ${failed && html`<${Unanswered} />`} ${dialog}
  </span>`;
}

const optionsOf = (element) =>
  element.option_groups
    ? element.option_groups.map(
        (group) => html`<optgroup label=${unescape(group.label.text)}>${group.options.map(option)}</optgroup>`,
      )
    : (element.options ?? []).map(option);

const option = (each) => html`<option value=${each.value}>${unescape(each.text.text)}</option>`;

function Choice({ element, value, onChange, ...rest }) {
  return html`<span class="select">
    <select data-action-id=${element.action_id} value=${value} onChange=${(event) => onChange(event.target.value)} ...${rest}>
      <option value="" disabled=${value !== ""}>${unescape(element.placeholder?.text ?? "Select an option")}</option>
      ${optionsOf(element)}
    </select>
    <${Icon} name="chevron" size=${16} />
  </span>`;
}

function ClickableSelect({ element, surface }) {
  const { busy, failed, start, dialog } = useClick(element, surface);
  const [value, setValue] = useState(element.initial_option?.value ?? "");
  const onChange = (chosen) => {
    setValue(chosen);
    start(chosen);
  };
  return html`<span class="element">
    <${Choice} element=${element} value=${value} onChange=${onChange} disabled=${busy} aria-label=${element.placeholder?.text ?? "Select"} />
    ${failed && html`<${Unanswered} />`} ${dialog}
  </span>`;
}

function Overflow({ element, surface }) {
  const { busy, failed, start, dialog } = useClick(element, surface);
  const [open, setOpen] = useState(false);
  const pick = (value) => {
    setOpen(false);
    start(value);
  };
  return html`<span class="element overflow" onKeyDown=${(event) => event.key === "Escape" && setOpen(false)}>
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
    >⋯</button>
    ${open &&
    html`<span class="menu" role="menu">
      ${element.options.map(
        (each) => html`<button type="button" role="menuitem" data-value=${each.value} onClick=${() => pick(each.value)}><${Text} text=${each.text} /></button>`,
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
      return html`<${Button} element=${element} surface=${surface} />`;
    case "static_select":
      return html`<${ClickableSelect} element=${element} surface=${surface} />`;
    case "overflow":
      return html`<${Overflow} element=${element} surface=${surface} />`;
    case "image":
      return html`<${Picture} url=${element.image_url} alt=${element.alt_text} />`;
    default:
      return null;
  }
}

function Options({ element, value, onChange, id }) {
  const many = element.type === "checkboxes";
  const flip = (each) => {
    if (!many) return each;
    return value.includes(each) ? value.filter((other) => other !== each) : [...value, each];
  };
  return html`<div class="options" role=${many ? "group" : "radiogroup"} data-action-id=${element.action_id}>
    ${element.options.map(
      (each) => html`<label>
        <input
          type=${many ? "checkbox" : "radio"}
          name=${id}
          value=${each.value}
          checked=${many ? value.includes(each.value) : value === each.value}
          onChange=${() => onChange(flip(each.value))}
        />
        <${Text} text=${each.text} />
      </label>`,
    )}
  </div>`;
}

const INPUT_TYPES = { plain_text_input: "text", number_input: "text", email_text_input: "email", url_text_input: "url", datepicker: "date" };

/** The element of an input block: it holds a value and sends nothing by itself. */
export function Field({ element, id, value, onChange, described }) {
  if (element.type === "static_select") {
    return html`<${Choice} element=${element} value=${value} onChange=${onChange} id=${id} aria-describedby=${described} />`;
  }
  if (element.type === "radio_buttons" || element.type === "checkboxes") {
    return html`<${Options} element=${element} value=${value} onChange=${onChange} id=${id} />`;
  }
  if (!INPUT_TYPES[element.type]) return html`<p class="hint">This page cannot show a ${element.type} field.</p>`;
  const shared = {
    id,
    value,
    class: "field",
    "data-action-id": element.action_id,
    "aria-describedby": described,
    "data-autofocus": element.focus_on_load || undefined,
    placeholder: unescape(element.placeholder?.text ?? ""),
    maxLength: element.max_length,
    onInput: (event) => onChange(event.target.value),
  };
  if (element.multiline) return html`<textarea rows="4" ...${shared}></textarea>`;
  const mode = element.type === "number_input" ? "decimal" : undefined;
  return html`<input type=${INPUT_TYPES[element.type]} inputmode=${mode} autocomplete="off" ...${shared} />`;
}
