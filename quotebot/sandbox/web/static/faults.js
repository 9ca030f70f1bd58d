// What can be broken: every fault the world knows, what is armed now and how often it has struck, and the last delivery once more.

import { html, useEffect, useState } from "./vendor/standalone.module.js";
import { disarm, post, read } from "./api.js";

const TARGETS = [
  { name: "salesforce", title: "Salesforce" },
  { name: "slack", title: "Slack" },
  { name: "socket", title: "Socket" },
  { name: "llm", title: "Language model" },
];
const FOREVER_SECONDS = 86_400;
const SPANS = [
  { name: "until", title: "until cleared", body: { seconds: FOREVER_SECONDS } },
  { name: "once", title: "once", body: { times: 1 } },
  { name: "thrice", title: "3 times", body: { times: 3 } },
  { name: "half-minute", title: "for 30 seconds", body: { seconds: 30 } },
];
const TIMES = [1, 2, 5];
const count = (n, one, many = `${one}s`) => (n === 1 ? `1 ${one}` : `${n} ${many}`);

const titleOf = (target) => TARGETS.find((each) => each.name === target)?.title ?? target;

/** What an armed fault still has in it. */
function leftOf(fault) {
  if (!fault.active) return "spent";
  if (fault.seconds_left !== null) return fault.seconds_left > FOREVER_SECONDS / 2 ? "until cleared" : `${fault.seconds_left} s left`;
  return `${fault.times - fault.hits} left`;
}

function Armed({ faults, names }) {
  if (!faults.length) return html`<p class="note" data-testid="armed">Nothing is broken right now.</p>`;
  return html`<div data-testid="armed">
    <ul class="armed">
      ${faults.map(
        (fault) => html`<li key=${fault.id} class=${fault.active ? "" : "spent"} data-testid="armed-fault" data-effect=${fault.effect} data-hits=${fault.hits}>
          <span><b>${titleOf(fault.target)}</b> ${names.get(`${fault.target} ${fault.effect}`) ?? fault.effect}${fault.method && ` (${fault.method})`}</span>
          <span class="note">struck ${count(fault.hits, "time")}, ${leftOf(fault)}</span>
          <button type="button" class="link-button" aria-label=${`Clear ${titleOf(fault.target)} ${names.get(`${fault.target} ${fault.effect}`) ?? fault.effect}`} onClick=${() => disarm(fault.id)}>Clear</button>
        </li>`,
      )}
    </ul>
    <button type="button" class="button small" data-testid="clear-faults" onClick=${() => disarm(null)}>Clear all</button>
  </div>`;
}

function Kind({ kind, span, method, onSaid }) {
  const at = { now: "Do it", lasting: "Turn on", requests: "Turn on" }[kind.strikes];
  async function arm() {
    const body = kind.strikes === "now" ? { times: 1 } : kind.strikes === "lasting" && !span.seconds ? { seconds: 30 } : span;
    const answer = await post("faults", { target: kind.target, effect: kind.effect, method: kind.strikes === "requests" && method ? method : null, retry_after: kind.effect === "429" ? 2 : null, ...body });
    onSaid(answer.error ? `That could not be turned on. ${answer.error}` : null);
  }
  return html`<li class="kind" data-testid="kind" data-effect=${kind.effect}>
    <div><b>${kind.name}</b><span class="note">${kind.about}</span></div>
    <button type="button" class="button small" aria-label=${`${at}: ${titleOf(kind.target)}, ${kind.name}`} onClick=${arm}>${at}</button>
  </li>`;
}

function Redeliver({ last }) {
  const [times, setTimes] = useState(1);
  const [said, setSaid] = useState(null);
  if (!last) return html`<p class="note">Nothing was delivered to the bot yet.</p>`;
  async function send(kind) {
    setSaid("Sending…");
    const answer = await post("redeliver", { request_id: last.request_id, kind, times });
    if (answer.error) setSaid(`Nothing was sent. ${answer.error}`);
    else setSaid(answer.acks.map((ack) => (ack.ack_ms === null ? `no acknowledgement (${ack.error ?? "none in time"})` : `acknowledged in ${ack.ack_ms.toFixed(1)} ms`)).join(", "));
  }
  return html`<div data-testid="redeliver">
    <p class="last"><code>${last.about}</code><span class="note">${last.kind.replaceAll("_", " ")} · ${last.request_id}</span></p>
    <div class="deeds">
      <label class="span-select">Copies
        <span class="select"><select data-testid="copies" value=${times} onChange=${(event) => setTimes(Number(event.target.value))}>
          ${TIMES.map((n) => html`<option value=${n}>${n}</option>`)}
        </select></span>
      </label>
      <button type="button" class="button small" data-testid="resend" title="The very same envelope" onClick=${() => send("resend")}>Send again</button>
      <button type="button" class="button small" data-testid="retry" title="A new envelope with Slack's retry number" onClick=${() => send("retry")}>As Slack's retry</button>
    </div>
    ${said && html`<p class="said" role="status" data-testid="redelivered">${said}</p>`}
  </div>`;
}

/** The weather, `weather`: {faults, last}. */
export function Faults({ weather }) {
  const [{ kinds, methods }, setKnown] = useState({ kinds: [], methods: {} });
  const [target, setTarget] = useState("salesforce");
  const [span, setSpan] = useState("until");
  const [method, setMethod] = useState("");
  const [said, setSaid] = useState(null);
  useEffect(() => {
    read("faults/known").then((found) => found && setKnown(found));
  }, []);
  function aim(where) {
    setTarget(where);
    setMethod("");
  }
  if (!weather) return html`<p class="note pad" role="status">Looking at what is broken…</p>`;
  const names = new Map(kinds.map((kind) => [`${kind.target} ${kind.effect}`, kind.name]));
  return html`<div class="faults" data-testid="faults">
    <section aria-label="Turned on"><h2>Turned on</h2><${Armed} faults=${weather.faults} names=${names} /></section>
    <section aria-label="Break something">
      <h2>Break something</h2>
      <div class="targets" role="group" aria-label="Where">
        ${TARGETS.map(({ name, title }) => html`<button type="button" key=${name} aria-pressed=${target === name} data-target=${name} onClick=${() => aim(name)}>${title}</button>`)}
      </div>
      <label class="span-select">How often
        <span class="select"><select data-testid="span" value=${span} onChange=${(event) => setSpan(event.target.value)}>
          ${SPANS.map(({ name, title }) => html`<option value=${name}>${title}</option>`)}
        </select></span>
      </label>
      <label class="span-select">Only this method
        <input class="field" data-testid="method" list="fault-methods" placeholder="any" value=${method} onInput=${(event) => setMethod(event.target.value.trim())} />
      </label>
      <datalist id="fault-methods">${(methods[target] ?? []).map((each) => html`<option value=${each} />`)}</datalist>
      ${said && html`<p class="said" role="alert">${said}</p>`}
      <ul class="kinds">
        ${kinds.filter((kind) => kind.target === target).map((kind) => html`<${Kind} key=${kind.effect} kind=${kind} method=${method} span=${SPANS.find((each) => each.name === span).body} onSaid=${setSaid} />`)}
      </ul>
    </section>
    <section aria-label="The last delivery"><h2>The last delivery, once more</h2><${Redeliver} last=${weather.last} /></section>
  </div>`;
}
