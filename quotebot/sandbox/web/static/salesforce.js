// What the local Salesforce holds: each quote with its status and its lines.

import { html, useEffect, useState } from "./vendor/standalone.module.js";
import { read } from "./api.js";

const LOOK_MS = 1500;

/** The org's quotes, newest first, with their lines; null before the first look. */
function useQuotes() {
  const [held, setHeld] = useState(null);
  useEffect(() => {
    let timer = null;
    let stopped = false;
    async function look() {
      const [quotes, lines] = await Promise.all([read("salesforce/Quote"), read("salesforce/QuoteLineItem")]);
      if (stopped) return;
      if (quotes && lines) setHeld(quotes.map((quote) => ({ ...quote, lines: lines.filter((line) => line.QuoteId === quote.Id) })).reverse());
      timer = setTimeout(look, LOOK_MS);
    }
    look();
    return () => {
      stopped = true;
      clearTimeout(timer);
    };
  }, []);
  return held;
}

const money = (amount, currency) => (typeof amount === "number" ? amount.toLocaleString("en-US", { style: "currency", currency }) : "–");

function Line({ line }) {
  return html`<tr data-testid="crm-line">
    <td><b>${line.Quotebot_Name__c ?? line.Quotebot_Sku__c}</b></td>
    <td class="number">${line.Quantity}</td>
    <td class="number">${line.Discount ? `${line.Discount}%` : "–"}</td>
    <td class="number">${money(line.Quotebot_Net__c ?? line.TotalPrice, line.CurrencyIsoCode)}</td>
  </tr>`;
}

function Quote({ quote, org }) {
  return html`<li class="operation" data-testid="crm-quote">
    <div class="crm-head">
      <span class="operation-line"><b>${quote.Name}</b><span class="state good">${quote.Status}</span></span>
      <span class="operation-line note"><span>${quote.Quotebot_Account__c} · valid until ${quote.ExpirationDate}</span><b>${money(quote.GrandTotal, quote.CurrencyIsoCode)}</b></span>
      <span class="operation-line note"><code class="crm-link" data-testid="crm-link" title="Paste this link into a channel">${org}/${quote.Id}</code></span>
    </div>
    <table class="effects">
      <thead><tr><th scope="col">Line</th><th scope="col" class="number">Quantity</th><th scope="col" class="number">Discount</th><th scope="col" class="number">Total</th></tr></thead>
      <tbody>${quote.lines.map((line) => html`<${Line} key=${line.Id} line=${line} />`)}</tbody>
    </table>
  </li>`;
}

/** The tab. It shows the records themselves, also while Salesforce answers nobody. */
export function Salesforce({ org }) {
  const quotes = useQuotes();
  if (!quotes) return html`<p class="note pad" role="status">Opening Salesforce…</p>`;
  return html`<div data-testid="crm">
    <p class="totals" data-testid="crm-total" role="status">${quotes.length === 1 ? "1 quote" : `${quotes.length} quotes`} in Salesforce.</p>
    ${quotes.length === 0 && html`<p class="note">An approved quote is written here.</p>`}
    <ul class="letters">${quotes.map((quote) => html`<${Quote} key=${quote.Id} quote=${quote} org=${org} />`)}</ul>
  </div>`;
}
