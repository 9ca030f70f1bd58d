// Who and what the ids of the workspace stand for, for every component below the page.

import { createContext } from "./vendor/standalone.module.js";

/** {users: Map(id -> user), channels: Map(id -> channel), shortcuts: of the app, me: user id, act(body): POST a click, seek(body): what a menu offers, pointed: the buttons that the guide means} */
export const Directory = createContext({ users: new Map(), channels: new Map(), shortcuts: [], me: null, pointed: [], act: async () => ({ ack: null }), seek: async () => ({ ack: null }) });

/** What a person is called on the page. */
export const called = (user) => user?.title || user?.real_name || user?.name || "Unknown";

/** The shapes the page needs of one state, seen by one person. */
export function directory(state, me, act, seek) {
  return {
    users: new Map(state.users.map((user) => [user.id, user])),
    channels: new Map(state.channels.map((channel) => [channel.id, channel])),
    shortcuts: state.app.shortcuts,
    me,
    act,
    seek,
  };
}

/** Whether `message` is for this person's eyes. */
export const visibleTo = (message, me) => !message.ephemeral_for || message.ephemeral_for === me;

/** Whether `message` belongs to a thread rather than to the channel itself. */
export const isReply = (message) => Boolean(message.thread_ts) && message.thread_ts !== message.ts;

/**
 * The channels a person sees, named as that person sees them: {id, name, isIm, other: user or null}. The conversation with
 * the bot is always among them: the world creates it at the first message, by the id it has here.
 */
export function channelsOf(state, me) {
  const users = new Map(state.users.map((user) => [user.id, user]));
  const bot = state.users.find((user) => user.is_bot);
  const joined = state.channels
    .filter((channel) => !channel.members?.length || channel.members.includes(me))
    .map((channel) => {
      const other = channel.is_im ? users.get(channel.members.find((id) => id !== me)) ?? null : null;
      return { id: channel.id, isIm: Boolean(channel.is_im), isArchived: Boolean(channel.is_archived), isShared: Boolean(channel.is_ext_shared), other, name: channel.is_im ? called(other) : channel.name };
    });
  if (bot && me && !joined.some((channel) => channel.other?.is_bot)) {
    joined.push({ id: `D${me.slice(1)}`, isIm: true, other: bot, name: called(bot) });
  }
  return joined;
}
