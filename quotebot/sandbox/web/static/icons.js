// The page's line icons, drawn at 20 by 20 in the colour of the text around them.

import { html } from "./vendor/standalone.module.js";

const SHAPES = {
  hash: ["M7.5 3 6 17M14 3l-1.5 14M3.5 7.500h13.500M3 12.500h13.5"],
  close: ["m5 5 10 10M15 5 5 15"],
  menu: ["M3 5.500h14M3 10h14M3 14.500h14"],
  chevron: ["m6 8 4 4 4-4"],
  send: ["M3.5 4.2 17 10 3.5 15.8 5 10.600l6-.6-6-.6z"],
  reply: ["M4 4.500h12a1.5 1.5 0 0 1 1.5 1.500v6.500a1.5 1.5 0 0 1-1.5 1.500h-5.500L6.5 17v-3H4A1.5 1.5 0 0 1 2.5 12.500V6A1.5 1.5 0 0 1 4 4.500zM6 8h8M6 10.800h5"],
  eye: ["M2 10s3-5.2 8-5.200S18 10 18 10s-3 5.2-8 5.200S2 10 2 10z", "M10 7.700a2.3 2.3 0 1 1 0 4.6 2.3 2.3 0 0 1 0-4.600z"],
  alert: ["M10 3.2 18 16.500H2zM10 8.300v3.600M10 14.100v.2"],
  check: ["m4.5 10.5 3.5 3.5 7.5-8"],
  bolt: ["M11 2.5 4.5 11.500H10l-1 6 6.5-9H10z"],
  minus: ["M5 10h10"],
  wait: ["M10 3a7 7 0 1 1 0 14 7 7 0 0 1 0-14zM10 6v4.200l2.800 1.800"],
  pulse: ["M2 10.500h3.500l2-5.500 4 10.500 2.500-7 1 2h3"],
  dots: ["M4 9.500h1v1H4zM9.500 9.500h1v1h-1zM15 9.500h1v1h-1z"],
  out: ["M8 4.500H4.500v11h11V12M11.5 4h4.500v4.500M16 4l-7 7"],
};

/** One icon, hidden from screen readers: the control around it carries the words. */
export function Icon({ name, size = 20 }) {
  return html`<svg class="icon" viewBox="0 0 20 20" width=${size} height=${size} aria-hidden="true">
    ${SHAPES[name].map((path) => html`<path d=${path} />`)}
  </svg>`;
}
