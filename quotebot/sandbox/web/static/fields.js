// Block Kit's elements as controls that hold a value: what an input block shows, and what a choice outside a form is made with.

import { html, useContext } from "./vendor/standalone.module.js";
import { Directory } from "./directory.js";
import { Icon } from "./icons.js";
import { Lookup } from "./lookup.js";
import { Text, unescape } from "./mrkdwn.js";
import { choicesOf } from "./values.js";

const INPUT_TYPES = {
  plain_text_input: "text",
  number_input: "text",
  email_text_input: "email",
  url_text_input: "url",
  datepicker: "date",
  timepicker: "time",
};
const ONE_OF = new Set(["static_select", "users_select", "channels_select", "conversations_select"]);
const MANY_OF = new Set(["multi_static_select", "multi_users_select", "multi_channels_select", "multi_conversations_select"]);
const LISTED = new Set(["checkboxes", "radio_buttons", ...MANY_OF]);

/** Whether this page can show an element as a field. */
export const canHold = (element) => element.type === "external_select" || ONE_OF.has(element.type) || LISTED.has(element.type) || Boolean(INPUT_TYPES[element.type]);

/** Whether an element is a group of controls, which a label's `for` cannot name. */
export const isGroup = (element) => LISTED.has(element.type);

const Choices = ({ choices }) => choices.map((each) => html`<option key=${each.value} value=${each.value}>${each.label}</option>`);

/** One of several, by the browser's own list. */
export function Choice({ element, value, onChange, ...rest }) {
  const directory = useContext(Directory);
  return html`<span class="select">
    <select data-action-id=${element.action_id} value=${value} onChange=${(event) => onChange(event.target.value)} ...${rest}>
      <option value="" disabled=${value !== ""}>${unescape(element.placeholder?.text ?? "Select an option")}</option>
      ${choicesOf(element, directory).map(({ label, choices }) =>
        label === null ? html`<${Choices} choices=${choices} />` : html`<optgroup label=${label}><${Choices} choices=${choices} /></optgroup>`,
      )}
    </select>
    <${Icon} name="chevron" size=${16} />
  </span>`;
}

/** Several of several, or one of few: every choice is in sight. */
export function Options({ element, value, onChange, id, disabled, ...rest }) {
  const directory = useContext(Directory);
  const many = element.type !== "radio_buttons";
  const flip = (each) => {
    if (!many) return each;
    return value.includes(each) ? value.filter((other) => other !== each) : [...value, each];
  };
  const full = many && element.max_selected_items && value.length >= element.max_selected_items;
  const row = (each) => html`<label key=${each.value}>
    <input
      type=${many ? "checkbox" : "radio"}
      name=${id}
      value=${each.value}
      checked=${many ? value.includes(each.value) : value === each.value}
      disabled=${disabled || (full && !value.includes(each.value))}
      onChange=${() => onChange(flip(each.value))}
    />
    <span>${each.text ? html`<${Text} text=${each.text} />` : each.label}${each.about && html`<span class="hint"><${Text} text=${each.about} /></span>`}</span>
  </label>`;
  return html`<div class=${`options ${MANY_OF.has(element.type) ? "boxed" : ""}`} role=${many ? "group" : "radiogroup"} data-action-id=${element.action_id} ...${rest}>
    ${choicesOf(element, directory).map(({ label, choices }) => html`${label !== null && html`<b class="options-label">${label}</b>`}${choices.map(row)}`)}
  </div>`;
}

/** A typed value. `onEnter` is called for the Enter key in a field of one line. */
export function Typed({ element, value, onChange, onEnter, ...rest }) {
  const shared = {
    value,
    class: "field",
    "data-action-id": element.action_id,
    "data-autofocus": element.focus_on_load || undefined,
    placeholder: unescape(element.placeholder?.text ?? ""),
    maxLength: element.max_length,
    onInput: (event) => onChange(event.target.value),
    ...rest,
  };
  if (element.multiline) return html`<textarea rows="4" ...${shared}></textarea>`;
  const mode = element.type === "number_input" ? (element.is_decimal_allowed ? "decimal" : "numeric") : undefined;
  const onKeyDown = (event) => {
    if (event.key !== "Enter" || event.isComposing || !onEnter) return;
    event.preventDefault();
    onEnter();
  };
  return html`<input type=${INPUT_TYPES[element.type]} inputmode=${mode} autocomplete="off" onKeyDown=${onEnter && onKeyDown} ...${shared} />`;
}

/** The element of an input block. `labelled` and `described` are the ids of its label and of its notes. */
export function Field({ element, id, value, onChange, onEnter, labelled, described, invalid, surface }) {
  const notes = { "aria-describedby": described, "aria-invalid": invalid || undefined };
  if (element.type === "external_select") return html`<${Lookup} element=${element} value=${value} onChange=${onChange} surface=${surface} id=${id} ...${notes} />`;
  if (ONE_OF.has(element.type)) return html`<${Choice} element=${element} value=${value} onChange=${onChange} id=${id} ...${notes} />`;
  if (LISTED.has(element.type)) return html`<${Options} element=${element} value=${value} onChange=${onChange} id=${id} aria-labelledby=${labelled} ...${notes} />`;
  if (INPUT_TYPES[element.type]) return html`<${Typed} element=${element} value=${value} onChange=${onChange} onEnter=${onEnter} id=${id} ...${notes} />`;
  return html`<p class="hint">This page cannot show a ${element.type} field.</p>`;
}
