// The panel beside the workspace: the bot's process, its ledger while it works, what can be broken, and what Salesforce holds.

import { html, useEffect, useState } from "./vendor/standalone.module.js";
import { watch } from "./api.js";
import { BotControls, DatabaseControl } from "./process.js";
import { Faults } from "./faults.js";
import { Icon } from "./icons.js";
import { Ledger } from "./ledger.js";
import { Salesforce } from "./salesforce.js";

const TABS = [
  { name: "ledger", title: "Jobs" },
  { name: "faults", title: "Break things" },
  { name: "salesforce", title: "Salesforce" },
];

/** What the world tells of its backstage while somebody looks: {ledger, weather, database} or nulls before the first word. */
function useBackstage() {
  const [news, setNews] = useState({ ledger: null, weather: null, database: null, linked: true });
  useEffect(() => watch((name, value) => setNews((old) => ({ ...old, [name]: value, linked: true })), () => setNews((old) => ({ ...old, linked: false }))), []);
  return news;
}

/** Arrow keys move between tabs, as in every tab list. */
function onArrows(event, tab, onTab) {
  const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (!step) return;
  event.preventDefault();
  const at = TABS.findIndex((each) => each.name === tab);
  const next = TABS[(at + step + TABS.length) % TABS.length].name;
  onTab(next);
  document.getElementById(`backstage-tab-${next}`).focus();
}

/** The panel. `tab` is ledger, faults or salesforce; `replicas` is how each bot's process is doing, none when they are somebody else's; `org` is the address of Salesforce. */
export function Backstage({ tab, onTab, onClose, replicas, person, users, org, onOperator }) {
  const { ledger, weather, database, linked } = useBackstage();
  const dead = ledger?.dead_letters?.length ?? 0;
  const armed = weather?.faults.filter((fault) => fault.active).length ?? 0;
  const counts = { ledger: dead, faults: armed };
  return html`<aside class="backstage" data-testid="backstage" aria-label="What's happening inside">
    <header class="bar">
      <div class="bar-title"><h1>What's happening inside</h1></div>
      <button type="button" class="icon-button" aria-label="Close this panel" data-testid="backstage-close" onClick=${onClose}><${Icon} name="close" /></button>
    </header>
    <${BotControls} replicas=${replicas} />
    ${database && html`<${DatabaseControl} database=${database} />`}
    <div class="tabs" role="tablist" aria-label="What's happening inside" onKeyDown=${(event) => onArrows(event, tab, onTab)}>
      ${TABS.map(
        ({ name, title }) => html`<button
          type="button"
          role="tab"
          id=${`backstage-tab-${name}`}
          data-testid=${`backstage-tab-${name}`}
          aria-selected=${tab === name}
          aria-controls="backstage-body"
          tabindex=${tab === name ? 0 : -1}
          onClick=${() => onTab(name)}
        >${title}${counts[name] > 0 && html` <span class="count">${counts[name]}</span>`}</button>`,
      )}
    </div>
    <div class="backstage-body" id="backstage-body" role="tabpanel" aria-labelledby=${`backstage-tab-${tab}`} tabindex="0">
      ${!linked && html`<p class="banner" role="alert">The sandbox cannot be reached. Trying again…</p>`}
      ${tab === "ledger" && html`<${Ledger} seen=${ledger} person=${person} users=${users} onOperator=${onOperator} />`}
      ${tab === "faults" && html`<${Faults} weather=${weather} />`}
      ${tab === "salesforce" && html`<${Salesforce} org=${org} />`}
    </div>
  </aside>`;
}
