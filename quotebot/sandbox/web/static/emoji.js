// Slack's short names for the emoji a sales workspace meets; an unknown name stays as it was typed.

const EMOJI = {
  "+1": "👍", "-1": "👎", abacus: "🧮", alarm_clock: "⏰", arrow_double_up: "⏫", arrow_down: "⬇️", arrow_right: "➡️", arrow_up: "⬆️",
  arrows_counterclockwise: "🔄", ballot_box_with_check: "☑️", bar_chart: "📊", bell: "🔔", black_small_square: "▪️", book: "📖",
  briefcase: "💼", bulb: "💡", calendar: "📅", chart_with_downwards_trend: "📉", chart_with_upwards_trend: "📈", checkered_flag: "🏁",
  clipboard: "📋", clock1: "🕐", clock3: "🕒", closed_book: "📕", closed_lock_with_key: "🔐", double_vertical_bar: "⏸️",
  exclamation: "❗", eyes: "👀", file_folder: "📁", fire: "🔥", gear: "⚙️", grey_question: "❔", hammer_and_wrench: "🛠️",
  handshake: "🤝", heavy_check_mark: "✔️", heavy_exclamation_mark: "❗", heavy_minus_sign: "➖", heavy_plus_sign: "➕",
  hourglass: "⌛", hourglass_flowing_sand: "⏳", inbox_tray: "📥", information_source: "ℹ️", large_blue_circle: "🔵",
  large_green_circle: "🟢", large_orange_circle: "🟠", large_red_square: "🟥", large_yellow_circle: "🟡", link: "🔗", lock: "🔒",
  mag: "🔍", mag_right: "🔎", mailbox: "📫", memo: "📝", moneybag: "💰", negative_squared_cross_mark: "❎", no_entry: "⛔",
  no_entry_sign: "🚫", octagonal_sign: "🛑", outbox_tray: "📤", package: "📦", page_facing_up: "📄", paperclip: "📎",
  party_popper: "🎉", pencil: "📝", pencil2: "✏️", point_right: "👉", pushpin: "📌", question: "❓", receipt: "🧾", recycle: "♻️",
  red_circle: "🔴", repeat: "🔁", robot_face: "🤖", rocket: "🚀", rotating_light: "🚨", scales: "⚖️", shield: "🛡️",
  slightly_smiling_face: "🙂", smile: "😄", sparkles: "✨", speech_balloon: "💬", stopwatch: "⏱️", tada: "🎉", thumbsdown: "👎",
  thumbsup: "👍", timer_clock: "⏲️", trophy: "🏆", unlock: "🔓", warning: "⚠️", wastebasket: "🗑️", wave: "👋", white_check_mark: "✅",
  white_circle: "⚪", x: "❌", zap: "⚡",
};

const bare = (character) => character.replace("\uFE0F", "");

// The first name wins where two share a character.
const NAMES = new Map(Object.entries(EMOJI).reverse().map(([name, character]) => [bare(character), name]));

const ANY = new RegExp(`((?:${[...NAMES.keys()].join("|")})\uFE0F?)`, "u");

/** The character of a short name, or null. Own properties only: `:constructor:` is not an emoji. */
export const emoji = (name) => (Object.hasOwn(EMOJI, name) ? EMOJI[name] : null);

/** A text cut at the emoji written as characters: strings and, at every odd place, the short name of one. */
export const cutAtEmoji = (text) => text.split(ANY).map((part, n) => (n % 2 ? NAMES.get(bare(part)) : part));
