// The emoji a quote's life is told with, drawn here: a machine without a colour emoji font would show boxes instead.

import { html } from "./vendor/standalone.module.js";

const PAGE = [{ d: "M5 2h7l4 4v12H5z", fill: "#f2f4f7", stroke: "#8b98a8" }, { d: "M12 2v4h4M7.5 10h6M7.5 13h6", stroke: "#8b98a8" }];
const disc = (fill) => [{ d: "M10 2a8 8 0 1 1 0 16 8 8 0 0 1 0-16z", fill }];
const HOURGLASS = [
  { d: "M6 3h8v2.500L11 10l3 4.500V17H6v-2.500L9 10 6 5.500z", fill: "#fbe9c0", stroke: "#b98a2c" },
  { d: "M7.5 15.8 10 13l2.5 2.800z", fill: "#e2a52e" },
  { d: "M4.8 2.800h10.400M4.8 17.200h10.4", stroke: "#8a6420", width: 2 },
];
const TURN = [
  { d: "M3 2h14a1 1 0 0 1 1 1v14a1 1 0 0 1-1 1H3a1 1 0 0 1-1-1V3a1 1 0 0 1 1-1z", fill: "#3b88c3" },
  { d: "M14.5 9A4.7 4.7 0 0 0 6 7.400M5.5 11a4.7 4.7 0 0 0 8.5 1.600M5.8 4.800v2.800h2.800M14.2 15.200v-2.800h-2.8", stroke: "#fff", width: 1.7 },
];
const LOCK = [
  { d: "M6.5 9V6.500a3.5 3.5 0 0 1 7 0V9", stroke: "#8b98a8", width: 2 },
  { d: "M5 9h10a1 1 0 0 1 1 1v7a1 1 0 0 1-1 1H5a1 1 0 0 1-1-1v-7a1 1 0 0 1 1-1z", fill: "#f0b429" },
];
const BOX = "M4 2h12a2 2 0 0 1 2 2v12a2 2 0 0 1-2 2H4a2 2 0 0 1-2-2V4a2 2 0 0 1 2-2z";
const LENS = [{ d: "M8 3a5 5 0 1 1 0 10 5 5 0 0 1 0-10z", fill: "#dcebf7", stroke: "#6c7a89", width: 1.8 }, { d: "m12 12 5 5", stroke: "#6c7a89", width: 2.8 }];
const TRAY = { d: "M2.5 11.500h4.500l1.2 2h3.600l1.2-2h4.500v5a1 1 0 0 1-1 1h-13a1 1 0 0 1-1-1z", fill: "#d5dbe3", stroke: "#8b98a8" };
const MARK = (stroke, d) => [{ d, stroke, width: 3 }];

const DRAWN = {
  white_check_mark: [
    { d: BOX, fill: "#2e9e5b" },
    { d: "m5.5 10.3 3.2 3.2 6-7", stroke: "#fff", width: 2.2 },
  ],
  ballot_box_with_check: [{ d: BOX, fill: "#3b88c3" }, { d: "m5.5 10.3 3.2 3.2 6-7", stroke: "#fff", width: 2.2 }],
  double_vertical_bar: [{ d: BOX, fill: "#3b88c3" }, { d: "M7.5 6.500v7M12.5 6.500v7", stroke: "#fff", width: 2.6 }],
  abacus: [
    { d: "M3 2.500h14v15H3z", fill: "#fbf3e4", stroke: "#8a5a2b", width: 1.8 },
    { d: "M3.5 7h13M3.5 13h13", stroke: "#b98a5c", width: 1.2 },
    { d: "M7 5.500v3M9.5 5.500v3", stroke: "#d8314f", width: 2.2 },
    { d: "M10.5 11.500v3M13 11.500v3", stroke: "#3b88c3", width: 2.2 },
  ],
  mag: LENS,
  mag_right: LENS,
  outbox_tray: [TRAY, { d: "M10 10V3M7 5.500l3-3 3 3", stroke: "#2e9e5b", width: 2 }],
  inbox_tray: [TRAY, { d: "M10 2.500v7M7 7l3 3 3-3", stroke: "#3b88c3", width: 2 }],
  checkered_flag: [
    { d: "M4 3h12.500v9H4z", fill: "#fff", stroke: "#8b98a8" },
    { d: "M4 3h4.200v3H4zM12.3 3h4.200v3h-4.200zM8.2 6h4.100v3H8.200zM4 9h4.200v3H4zM12.3 9h4.200v3h-4.200z", fill: "#2b2f36" },
    { d: "M4 2.500v15.500", stroke: "#6c7a89", width: 1.8 },
  ],
  closed_book: [{ d: "M5 2h11v13H6a1.5 1.5 0 0 0 0 3h10V15M4 3a1 1 0 0 1 1-1v13.500H4z", fill: "#d8314f" }, { d: "M6 15.600h9.500v1.800H6a.9.9 0 0 1 0-1.800z", fill: "#f2f4f7" }],
  heavy_check_mark: MARK("#2e9e5b", "m4 10.5 4 4 8-9"),
  x: MARK("#d8314f", "m4.5 4.5 11 11M15.5 4.500l-11 11"),
  warning: [{ d: "M10 2 19 17.500H1z", fill: "#ffcc4d", stroke: "#e0a417" }, { d: "M10 7.500v4.500M10 14.700v.1", stroke: "#3b2c06", width: 2.2 }],
  no_entry: [...disc("#d8314f"), { d: "M5.8 10h8.4", stroke: "#fff", width: 3 }],
  no_entry_sign: [{ d: "M10 3a7 7 0 1 1 0 14 7 7 0 0 1 0-14zM5 5l10 10", stroke: "#d8314f", width: 2.4 }],
  octagonal_sign: [{ d: "M6.7 2h6.600L18 6.700v6.600L13.3 18H6.700L2 13.300V6.700z", fill: "#d8314f" }],
  information_source: [...disc("#3b88c3"), { d: "M10 9.300v5M10 6.200v.1", stroke: "#fff", width: 2.2 }],
  grey_question: [{ d: "M6.5 6.500a3.5 3.5 0 1 1 5 3.200c-1 .6-1.5 1.2-1.5 2.600M10 16v.1", stroke: "#8b98a8", width: 2.6 }],
  question: [{ d: "M6.5 6.500a3.5 3.5 0 1 1 5 3.200c-1 .6-1.5 1.2-1.5 2.600M10 16v.1", stroke: "#d8314f", width: 2.6 }],
  exclamation: MARK("#d8314f", "M10 3v8.500M10 16v.1"),
  hourglass_flowing_sand: HOURGLASS,
  hourglass: HOURGLASS,
  arrows_counterclockwise: TURN,
  repeat: TURN,
  page_facing_up: PAGE,
  clipboard: PAGE,
  receipt: PAGE,
  memo: [...PAGE, { d: "m9 15 1-3 6-6 2 2-6 6z", fill: "#f0b429", stroke: "#a8741a" }],
  pencil2: [{ d: "M3 17l1.2-4.500L13.5 3.200l3.300 3.300L7.5 15.800z", fill: "#f0b429", stroke: "#a8741a" }, { d: "M3 17l1.2-4.500 3.300 3.300z", fill: "#2b2f36" }],
  wastebasket: [{ d: "M4.5 6h11l-1 12h-9z", fill: "#d5dbe3", stroke: "#8b98a8" }, { d: "M3.5 5h13M8 3h4M8.300 8.500l.3 7M11.700 8.500l-.3 7", stroke: "#6c7a89", width: 1.6 }],
  trophy: [
    { d: "M6 2.500h8v5a4 4 0 0 1-8 0zM7 17.500v-2h6v2z", fill: "#f0b429", stroke: "#a8741a" },
    { d: "M6 4H3v1.500a3 3 0 0 0 3 3M14 4h3v1.500a3 3 0 0 1-3 3M10 11.500v4", stroke: "#a8741a", width: 1.6 },
  ],
  alarm_clock: [
    { d: "M10 4.500a6.500 6.500 0 1 1 0 13 6.500 6.500 0 0 1 0-13z", fill: "#f2f4f7", stroke: "#d8314f", width: 1.8 },
    { d: "M10 7.500V11l2.500 1.500M3 5.500 6 3M17 5.500 14 3", stroke: "#6c7a89", width: 1.6 },
  ],
  arrow_double_up: [{ d: BOX, fill: "#3b88c3" }, { d: "m6 10 4-4 4 4M6 14.500l4-4 4 4", stroke: "#fff", width: 2 }],
  arrow_down: [{ d: BOX, fill: "#3b88c3" }, { d: "M10 5.500v8.500M6.500 10.500 10 14l3.500-3.500", stroke: "#fff", width: 2 }],
  lock: LOCK,
  closed_lock_with_key: LOCK,
  bell: [{ d: "M10 2.500c3 0 4.8 2.2 4.8 5 0 4 1.7 5 1.7 6.500h-13c0-1.5 1.7-2.5 1.7-6.5 0-2.8 1.8-5 4.8-5z", fill: "#f0b429" }, { d: "M8.3 16.500h3.4", stroke: "#a8741a", width: 2.4 }],
  bulb: [{ d: "M10 2a5.5 5.5 0 0 1 3 10v2H7v-2a5.5 5.5 0 0 1 3-10z", fill: "#ffd35c" }, { d: "M7.5 16h5M8.5 18h3", stroke: "#8b98a8", width: 1.6 }],
  tada: [{ d: "m2.5 17.5 4-10.500L13 13.500z", fill: "#f0b429" }, { d: "M10 6V2.500M13.5 9.5 17 8M12 7l3-3.500M14 13l3.5.5", stroke: "#b0355f", width: 1.8 }],
  moneybag: [{ d: "M7.5 2.500h5L11.5 5.500c3 1.5 5 5 5 8 0 2.5-2 4-6.5 4s-6.5-1.5-6.5-4c0-3 2-6.5 5-8z", fill: "#f0b429" }, { d: "M11.8 9.800c-1-1-3.6-.8-3.6.8s3.6.9 3.6 2.5-2.6 1.7-3.7.6M10 8.300v7", stroke: "#7a5410", width: 1.2 }],
  large_green_circle: disc("#2e9e5b"),
  large_yellow_circle: disc("#ffcc4d"),
  large_orange_circle: disc("#f18f26"),
  large_blue_circle: disc("#3b88c3"),
  red_circle: disc("#d8314f"),
  white_circle: disc("#d5d9de"),
};

/** The drawing of an emoji by its short name, or null where the font has to do. */
export function drawing(name) {
  if (!Object.hasOwn(DRAWN, name)) return null;
  return html`<svg class="drawn" viewBox="0 0 20 20" aria-hidden="true">
    ${DRAWN[name].map(
      ({ d, fill = "none", stroke = "none", width = 1 }) =>
        html`<path d=${d} fill=${fill} stroke=${stroke} stroke-width=${width} stroke-linecap="round" stroke-linejoin="round" />`,
    )}
  </svg>`;
}
