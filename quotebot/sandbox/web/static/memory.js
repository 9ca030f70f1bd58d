// What one browser tab remembers: who you are, where you were, and what each person has already seen.

import { useRef, useState } from "./vendor/standalone.module.js";
import { channelsOf, isReply, visibleTo } from "./directory.js";

/** Like useState, kept for the life of the tab. A tab is one person: two tabs can be two people. */
export function useRemembered(key, first) {
  const [value, setValue] = useState(() => {
    const stored = sessionStorage.getItem(`quotebot.${key}`);
    if (stored === null && first !== null && first !== undefined) sessionStorage.setItem(`quotebot.${key}`, JSON.stringify(first));
    return stored === null ? first : JSON.parse(stored);
  });
  const set = (next) => {
    sessionStorage.setItem(`quotebot.${key}`, JSON.stringify(next));
    setValue(next);
  };
  return [value, set];
}

/** Like useState, kept by this browser for good; where it keeps nothing, for the life of the page. */
export function useKept(key, first) {
  const [value, setValue] = useState(() => {
    try {
      const stored = localStorage.getItem(`quotebot.${key}`);
      return stored === null ? first : JSON.parse(stored);
    } catch {
      return first;
    }
  });
  const set = (next) => {
    setValue(next);
    try {
      localStorage.setItem(`quotebot.${key}`, JSON.stringify(next));
    } catch {
      // A browser that keeps nothing asks again next time.
    }
  };
  return [value, set];
}

function mentions(message, id) {
  const mark = `<@${id}`;
  return (message.text ?? "").includes(mark) || JSON.stringify(message.blocks ?? []).includes(mark);
}

/**
 * What nobody has looked at yet, counted from when the page was opened. `person(id)` and `badge(id, channel)` count what
 * concerns that person (direct messages and mentions); `fresh(id, channel)` tells whether there is anything new at all;
 * `isNews(message)` whether it was unread when this person came in here.
 * The place on screen, `me` in `here`, counts as seen.
 */
export function useUnread(state, people, me, here) {
  const seen = useRef(null); // Map("person channel" -> ts of the last message seen)
  const entered = useRef({ place: null }); // where the line above the news stands, from coming in to going out
  const latest = new Map();
  for (const { channel, ts } of state.messages) if (!(Number(latest.get(channel)) >= Number(ts))) latest.set(channel, ts);
  const key = (person, channel) => `${person} ${channel}`;
  const mark = (person, channel) => latest.has(channel) && seen.current.set(key(person, channel), latest.get(channel));
  if (seen.current === null) {
    seen.current = new Map();
    for (const person of people) for (const channel of latest.keys()) mark(person.id, channel);
  }
  if (entered.current.place !== key(me, here)) {
    entered.current = { place: key(me, here), since: Number(seen.current.get(key(me, here)) ?? 0), upTo: Number(latest.get(here) ?? 0) };
  }
  mark(me, here);

  const counts = new Map();
  for (const person of people) {
    for (const channel of channelsOf(state, person.id)) {
      const since = Number(seen.current.get(key(person.id, channel.id)) ?? 0);
      const news = state.messages.filter(
        (each) =>
          each.channel === channel.id && Number(each.ts) > since && each.user !== person.id && !isReply(each) && visibleTo(each, person.id),
      );
      const concerning = channel.isIm ? news : news.filter((each) => mentions(each, person.id));
      counts.set(key(person.id, channel.id), { fresh: news.length > 0, badge: concerning.length });
    }
  }
  const of = (person, channel) => counts.get(key(person, channel)) ?? { fresh: false, badge: 0 };
  const { since, upTo } = entered.current;
  return {
    isNews: ({ ts, user }) => Number(ts) > since && Number(ts) <= upTo && user !== me,
    fresh: (person, channel) => of(person, channel).fresh,
    badge: (person, channel) => of(person, channel).badge,
    person: (id) => channelsOf(state, id).reduce((sum, channel) => sum + of(id, channel.id).badge, 0),
  };
}
