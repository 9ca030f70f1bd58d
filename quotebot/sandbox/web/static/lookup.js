// A menu whose options come from the app while a person types (external_select), as a combobox with groups.

import { html, useContext, useEffect, useRef, useState } from "./vendor/standalone.module.js";
import { Directory } from "./directory.js";
import { unescape } from "./mrkdwn.js";

const PAUSE_MS = 150; // the app is asked at a pause in the typing, as Slack's client does it

/** The options of an answer, in groups of {label, options}; the label is null without groups. */
function groupsOf(answer) {
  const payload = answer.ack ?? {};
  return (payload.option_groups ?? [{ label: null, options: payload.options ?? [] }]).filter((group) => group.options.length > 0);
}

/** One option that the app offers. `onChange` gets its value. */
export function Lookup({ element, value, onChange, surface, id, ...rest }) {
  const { seek } = useContext(Directory);
  const [text, setText] = useState(null); // what is typed; null while the menu is closed
  const [groups, setGroups] = useState(null); // null: not answered yet
  const [at, setAt] = useState(0);
  const [label, setLabel] = useState(element.initial_option ? unescape(element.initial_option.text.text) : "");
  const asked = useRef(0);
  const open = text !== null;
  const least = element.min_query_length ?? 3;

  useEffect(() => {
    if (!open || text.length < least) {
      setGroups(open ? [] : null);
      return undefined;
    }
    const question = ++asked.current;
    const timer = setTimeout(async () => {
      const answer = await seek({ ...surface, action_id: element.action_id, value: text });
      if (asked.current !== question) return;
      setGroups(groupsOf(answer));
      setAt(0);
    }, PAUSE_MS);
    return () => clearTimeout(timer);
  }, [text]);

  const options = (groups ?? []).flatMap((group) => group.options);
  const close = () => setText(null);
  function pick(option) {
    setLabel(unescape(option.text.text));
    close();
    onChange(option.value);
  }
  function onKeyDown(event) {
    if (!open || event.isComposing) return;
    if ((event.key === "ArrowDown" || event.key === "ArrowUp") && options.length) {
      event.preventDefault();
      setAt((at + (event.key === "ArrowDown" ? 1 : options.length - 1)) % options.length);
    } else if (event.key === "Enter") {
      event.preventDefault(); // never sends the form
      if (options[at]) pick(options[at]);
    } else if (event.key === "Escape") {
      event.preventDefault();
      event.stopPropagation();
      close();
    }
  }
  const row = (option) => html`<li
    key=${option.value}
    id=${`${id}-${option.value}`}
    role="option"
    aria-selected=${options[at] === option}
    data-value=${option.value}
    onMouseDown=${(event) => {
      event.preventDefault(); // keeps the focus in the field
      pick(option);
    }}
  >${unescape(option.text.text)}</li>`;
  const nothing = groups === null ? "Looking…" : open && text.length < least ? `Type ${least} characters` : "No results";
  return html`<div class="lookup">
    <input
      type="text"
      class="field"
      role="combobox"
      autocomplete="off"
      id=${id}
      value=${open ? text : value === "" ? "" : label || value}
      placeholder=${unescape(element.placeholder?.text ?? "")}
      data-action-id=${element.action_id}
      aria-expanded=${open}
      aria-controls=${`${id}-options`}
      aria-activedescendant=${open && options[at] ? `${id}-${options[at].value}` : undefined}
      onFocus=${() => setText("")}
      onBlur=${close}
      onInput=${(event) => setText(event.target.value)}
      onKeyDown=${onKeyDown}
      ...${rest}
    />
    ${open &&
    html`<ul class="lookup-options" role="listbox" id=${`${id}-options`} data-testid="lookup-options">
      ${options.length === 0 && html`<li class="hint" role="presentation">${nothing}</li>`}
      ${options.length > 0 &&
      groups.map((group) => html`${group.label && html`<li class="lookup-group" role="presentation">${unescape(group.label.text)}</li>`}${group.options.map(row)}`)}
    </ul>`}
  </div>`;
}
