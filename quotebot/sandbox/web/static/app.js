// The page: one state from the world, one person looking at it, and what that person does sent back.

import { html, render, useEffect, useMemo, useRef, useState } from "./vendor/standalone.module.js";
import { follow, post } from "./api.js";
import { Avatar } from "./avatar.js";
import { Backstage } from "./backstage.js";
import { Blocks } from "./blocks.js";
import { Composer } from "./composer.js";
import { Directory, called, channelsOf, directory, isReply, visibleTo } from "./directory.js";
import { Guide, nextClick } from "./guide.js";
import { Icon } from "./icons.js";
import { Message, Messages, SLACKBOT } from "./messages.js";
import { Sidebar } from "./sidebar.js";
import { useKept, useRemembered, useUnread } from "./memory.js";
import { ViewModal } from "./view.js";

const OPS_CHANNEL = "quotebot-ops";
const byTs = (a, b) => Number(a.ts) - Number(b.ts);

/** The state, kept current, and whether the event stream is up. */
function useWorld() {
  const [state, setState] = useState(null);
  const [linked, setLinked] = useState(true);
  useEffect(() => follow(setState, setLinked), []);
  return { state, linked };
}

/** What Slackbot would say to one person in one place; it lives in this page only. */
function useNotices() {
  const [notices, setNotices] = useState([]);
  const add = (place, words) =>
    setNotices((old) => [
      ...old,
      { ...place, key: `notice-${old.length}`, ts: (Date.now() / 1000).toFixed(6), text: words, user: SLACKBOT, ephemeral_for: place.user },
    ]);
  return [notices, add];
}

function undelivered(answer) {
  if (answer.error === "sandbox_unreachable") return "Nothing was sent: the sandbox cannot be reached. Is `quotebot sandbox` still running?";
  return `Nothing was sent: the sandbox refused it. ${answer.error ?? ""}`;
}

/** The bot's state in two words: what its process does where this sandbox keeps it, else whether it is connected. */
function botWords(bot, process, linked) {
  if (!linked) return "Sandbox unreachable";
  if (process && process.state !== "running") return { starting: "Bot starting…", stopping: "Bot stopping…", dead: "Bot is dead" }[process.state];
  return bot?.connections > 0 ? "Bot connected" : "Bot not connected";
}

function StatusPill({ bot, process, linked }) {
  const up = linked && bot?.connections > 0;
  const note = up ? `${bot.connections} Socket Mode connection${bot.connections === 1 ? "" : "s"}` : "Commands will fail until it is back";
  return html`<span class=${`status ${up ? "up" : "down"}`} role="status" data-testid="bot-status" data-connected=${String(up)} title=${note}>
    <span class="dot"></span><span>${botWords(bot, process, linked)}</span>
  </span>`;
}

function Intro({ channel }) {
  if (channel.other?.is_bot) {
    return html`<div class="intro">
      <${Avatar} app size="large" />
      <h2>${channel.name} <span class="app-badge">APP</span></h2>
      <p>Ask the bot for a quote in your own words, or ask about one: what it answers arrives here, for you alone.</p>
    </div>`;
  }
  return html`<div class="intro">
    <span class="intro-mark"><${Icon} name=${channel.isIm ? "reply" : "hash"} size=${30} /></span>
    <h2>${channel.isIm ? channel.name : `#${channel.name}`}</h2>
    ${channel.name === OPS_CHANNEL
      ? html`<p>What needs an operator is posted here, with the buttons to deal with it.</p>`
      : html`<p>Type${" "}<code>/quote new</code> to build a quote, or${" "}<code>/quote help</code> to see what the bot can do. At the top left you switch person.</p>`}
  </div>`;
}

function Home({ view }) {
  return html`<div class="messages home" data-testid="app-home" tabindex="0">
    ${view
      ? html`<div class="home-inner"><${Blocks} blocks=${view.blocks} surface=${{ view_id: view.id }} /></div>`
      : html`<div class="empty"><${Avatar} app size="large" /><h2>Nothing here yet</h2><p>The bot has not published a home for this person.</p></div>`}
  </div>`;
}

/** The tabs of a conversation with an app. `news` counts what is new under Messages. */
function Tabs({ names, tab, news, onTab }) {
  return html`<div class="tabs" role="tablist">
    ${names.map(
      (name) => html`<button type="button" role="tab" data-testid=${`tab-${name.toLowerCase()}`} aria-selected=${tab === name} onClick=${() => onTab(name)}>
        ${name}${name === "Messages" && news > 0 && html` <span class="count" aria-label=${`${news} new`}>${news}</span>`}
      </button>`,
    )}
  </div>`;
}

function Thread({ root, replies, place, composer, onClose }) {
  const count = replies.length;
  const intro = html`<div class="thread-root">
    <${Message} message=${root} />
    ${count > 0 && html`<div class="day thread-count"><span>${count === 1 ? "1 reply" : `${count} replies`}</span></div>`}
  </div>`;
  return html`<aside class="thread" data-testid="thread" data-ts=${root.ts} aria-label="Thread">
    <header class="bar">
      <div class="bar-title"><h1>Thread</h1><span class="bar-note">${place}</span></div>
      <button type="button" class="icon-button" aria-label="Close thread" data-testid="thread-close" onClick=${onClose}><${Icon} name="close" /></button>
    </header>
    <${Messages} messages=${replies} intro=${intro} days=${false} testid="thread-messages" />
    ${composer}
  </aside>`;
}

function Page({ state, linked }) {
  const people = useMemo(() => state.users.filter((user) => !user.is_bot), [state]);
  const [chosen, setMe] = useRemembered("person", people[0]?.id);
  const me = people.some((user) => user.id === chosen) ? chosen : people[0]?.id;
  const channels = channelsOf(state, me);
  const [wanted, setWanted] = useRemembered("channel", null);
  const channel = channels.find((each) => each.id === wanted) ?? channels[0];
  const [thread, setThread] = useState(null);
  const [tab, setTab] = useState("Messages");
  const [drawer, setDrawer] = useState(false);
  const [backstage, setBackstage] = useRemembered("backstage", null); // which of its tabs, null while it is closed
  const [guided, setGuided] = useKept("guided", false);
  const [guidedFrom, setGuidedFrom] = useRemembered("guided-from", "0"); // quotes until then are none of the guide's
  const [drafts, setDrafts] = useState({});
  const [closedViews, setClosedViews] = useState([]);
  const [notices, notify] = useNotices();
  const [sending, setSending] = useState(0);

  // What a person still sees can be clicked, even when the card has changed since: the bot has to know what to say.
  const act = (body) => post("action", { user: me, stale: true, ...body });
  const seek = ({ view_id, channel, message_ts, action_id, value }) => post("suggest", { user: me, view_id, channel, message_ts, action_id, value });
  const lookup = useMemo(() => directory(state, me, act, seek), [state, me]);
  const isApp = Boolean(channel?.other?.is_bot);
  const guides = !guided && Boolean(channel) && !channel.isIm && channel === channels[0];
  const next = guided || !channels.length ? null : nextClick(state, channels[0].id, guidedFrom, people);
  const pointed = next?.person?.id === me ? next.pointed : [];
  const lookedUp = useMemo(() => ({ ...lookup, pointed }), [lookup, JSON.stringify(pointed)]);
  const mine = [...state.messages, ...notices].filter((each) => each.channel === channel?.id && visibleTo(each, me)).sort(byTs);
  const threads = new Map();
  for (const reply of mine.filter(isReply)) threads.set(reply.thread_ts, [...(threads.get(reply.thread_ts) ?? []), reply]);
  const top = mine.filter((each) => !isReply(each));
  // The manifest may leave the app its Home tab alone; what a bot says there all the same is not hidden.
  const tabs = state.app.messages_tab || mine.length > 0 ? ["Messages", "Home"] : ["Home"];
  const shownTab = tabs.includes(tab) ? tab : "Home";
  const showsHome = isApp && shownTab === "Home";
  const root = thread && top.find((each) => each.ts === thread);
  const view = state.views.filter((each) => each.user === me && !closedViews.includes(each.view.id)).at(-1);

  const unread = useUnread(state, people, me, showsHome ? null : channel?.id); // who looks at the Home tab has not read the messages

  // The world itself says, as Slackbot, what the bot failed to answer. What never reached it is said here.
  async function deliver(name, body) {
    setSending((n) => n + 1);
    const answer = await post(name, body);
    setSending((n) => n - 1);
    if (!answer.request_id && answer.error) notify({ user: me, channel: body.channel, thread_ts: body.thread_ts ?? null }, undelivered(answer));
  }
  function composerFor(threadTs) {
    if (channel.isArchived) return html`<p class="banner" data-testid="archived">#${channel.name} is archived: it can be read, and nobody writes here any more.</p>`;
    const place = { user: me, channel: channel.id, thread_ts: threadTs ?? null };
    const key = `${me} ${channel.id} ${threadTs ?? ""}`;
    const onSlash = (command, text) => {
      const known = state.app.commands.map((each) => each.command);
      const listed = known.map((each) => `\`${each}\``).join(", ");
      if (!known.includes(command)) notify(place, `\`${command}\` is not a valid command. This workspace knows ${listed}: try \`${known[0]} help\`.`);
      else if (threadTs) notify(place, `\`${command}\` is not supported in threads. Sorry! Type it in the channel.`);
      else deliver("slash", { user: me, channel: channel.id, command, text });
    };
    const onMessage = (text) => deliver("message", { user: me, channel: channel.id, text, ...(threadTs ? { thread_ts: threadTs } : {}) });
    return html`<${Composer}
      key=${key}
      testid=${threadTs ? "thread-composer" : "composer"}
      commands=${state.app.commands}
      verbs=${state.app.verbs}
      placeholder=${threadTs ? "Reply…" : `Message ${channel.isIm ? channel.name : `#${channel.name}`}`}
      draft=${drafts[key] ?? ""}
      onDraft=${(text) => setDrafts((old) => ({ ...old, [key]: text }))}
      onSlash=${onSlash}
      onMessage=${onMessage}
      offer=${!threadTs && !guides && !mine.some((each) => each.bot_id)}
      focused=${Boolean(threadTs) || window.matchMedia("(hover: hover)").matches}
    />`;
  }
  function open(id) {
    setWanted(id);
    setThread(null);
    setDrawer(false);
  }
  function choosePerson(id) {
    setMe(id);
    setThread(null);
    setDrawer(false);
    // Someone who looks at the bot's messages wants the next person's conversation with the bot, not the last one's.
    if (isApp) setWanted(channelsOf(state, id).find((each) => each.other?.is_bot)?.id ?? null);
  }
  const operator = people.find((user) => user.role === "operator");
  const alerts = state.channels.find((each) => each.name === OPS_CHANNEL);
  function showOperator() {
    setMe(operator.id);
    open(alerts.id);
    if (window.matchMedia("(width <= 1020px)").matches) setBackstage(null);
  }
  const onOperator = operator && alerts ? showOperator : null;
  const focus = (selector) => requestAnimationFrame(() => document.querySelector(selector)?.focus());
  function showBackstage(name) {
    setBackstage(name);
    focus(`#backstage-tab-${name}`);
  }
  function closeBackstage() {
    setBackstage(null);
    focus("[data-testid=backstage-open]");
  }
  function closeThread() {
    setThread(null);
    focus("[data-testid=composer]");
  }
  useEffect(() => {
    const onKeyDown = (event) => {
      if (event.key !== "Escape" || document.querySelector("dialog[open]")) return;
      if (drawer) setDrawer(false);
      else if (event.target.closest?.(".backstage")) closeBackstage();
      else if (thread) closeThread();
    };
    document.addEventListener("keydown", onKeyDown);
    return () => document.removeEventListener("keydown", onKeyDown);
  }, [drawer, thread]);

  useEffect(() => {
    // Slack tells the bot that someone looks at its home, and the bot publishes what that person should see.
    if (showsHome) post("home", { user: me });
  }, [showsHome, me]);
  function closeView(id) {
    setClosedViews((old) => [...old, id]); // gone at once, before the world says so
    post("close", { user: me, view_id: id });
  }

  if (!channel) return html`<p class="waiting">This person is in no channel.</p>`;
  return html`<${Directory.Provider} value=${lookedUp}>
    <p class="promise" data-testid="promise">A Slack, a Salesforce and an AI on your machine. Nothing leaves it.</p>
    <div class=${`app ${root ? "with-thread" : ""} ${backstage ? "with-backstage" : ""}`} data-testid="app" data-version=${state.version}>
      <${Sidebar}
        team=${state.team}
        people=${people}
        me=${me}
        channels=${channels}
        current=${channel.id}
        unread=${unread}
        pointed=${guides && next.at > 0 && Boolean(next.person) && next.person.id !== me}
        onPerson=${choosePerson}
        onOpen=${open}
        shown=${drawer}
      />
      ${drawer && html`<div class="scrim" onClick=${() => setDrawer(false)}></div>`}
      <main class="channel" aria-label=${channel.name}>
        <header class="bar">
          <button type="button" class="icon-button menu-button" aria-label="Open the sidebar" data-testid="menu" onClick=${() => setDrawer(true)}>
            <${Icon} name="menu" />
          </button>
          <div class="bar-title">
            ${channel.isIm ? html`<${Avatar} id=${channel.other?.id} name=${channel.name} app=${isApp} size="small" />` : html`<${Icon} name="hash" />`}
            <h1 data-testid="channel-name">${channel.name}</h1>
          </div>
          <span class="bar-me"><${Avatar} id=${me} name=${called(lookup.users.get(me))} size="small" /></span>
          <${StatusPill} bot=${state.bot} process=${state.process} linked=${linked} />
          <button type="button" class="backstage-button" data-testid="backstage-open" aria-expanded=${Boolean(backstage)} onClick=${() => (backstage ? closeBackstage() : showBackstage("ledger"))}>
            <${Icon} name="pulse" size=${18} /><span>What's happening inside</span>
          </button>
        </header>
        ${isApp && html`<${Tabs} names=${tabs} tab=${shownTab} news=${unread.badge(me, channel.id)} onTab=${setTab} />`}
        ${!linked && html`<p class="banner" role="alert">The sandbox cannot be reached. Trying again…</p>`}
        ${showsHome
          ? html`<${Home} view=${state.homes[me]} />`
          : html`<${Messages} key=${`${me} ${channel.id}`} messages=${top} threads=${threads} isNews=${unread.isNews} onThread=${setThread} intro=${html`<${Intro} channel=${channel} />`} testid="messages" />
              ${guides &&
              html`<${Guide}
                state=${state}
                next=${next}
                me=${me}
                channel=${channel.id}
                onPerson=${choosePerson}
                onBreak=${() => showBackstage("faults")}
                onOperator=${state.messages.some((each) => each.channel === alerts?.id && each.bot_id) ? onOperator : null}
                onAgain=${() => setGuidedFrom((Date.now() / 1000).toFixed(6))}
                onDismiss=${() => setGuided(true)}
              />`}
              ${composerFor(null)}
              <p class="sending" aria-live="polite">${sending > 0 ? "Sending…" : ""}</p>`}
      </main>
      ${root &&
      html`<${Thread}
        key=${`${me} ${root.ts}`}
        root=${root}
        replies=${threads.get(root.ts) ?? []}
        place=${channel.isIm ? channel.name : `#${channel.name}`}
        composer=${composerFor(root.ts)}
        onClose=${closeThread}
      />`}
      ${backstage &&
      html`<${Backstage}
        tab=${backstage}
        onTab=${setBackstage}
        onClose=${closeBackstage}
        replicas=${state.replicas}
        person=${lookup.users.get(me)?.name}
        users=${lookup.users}
        org=${state.salesforce_url}
        onOperator=${onOperator}
      />`}
      ${view &&
      html`<${ViewModal} key=${view.view.id} entry=${view} me=${me} onClose=${() => closeView(view.view.id)} />`}
    </div>
  </${Directory.Provider}>`;
}

function App() {
  const { state, linked } = useWorld();
  if (state) return html`<${Page} state=${state} linked=${linked} />`;
  return html`<p class="waiting" role="status">${linked ? "Opening the workspace…" : "The sandbox cannot be reached. Trying again…"}</p>`;
}

render(html`<${App} />`, document.getElementById("root"));
