// What Block Kit's elements hold: their value before anyone touched them, and what there is to choose from.

import { called } from "./directory.js";
import { unescape } from "./mrkdwn.js";

const INITIAL = {
  static_select: (element) => element.initial_option?.value ?? "",
  external_select: (element) => element.initial_option?.value ?? "",
  radio_buttons: (element) => element.initial_option?.value ?? "",
  checkboxes: (element) => (element.initial_options ?? []).map((option) => option.value),
  multi_static_select: (element) => (element.initial_options ?? []).map((option) => option.value),
  users_select: (element) => element.initial_user ?? "",
  multi_users_select: (element) => element.initial_users ?? [],
  channels_select: (element) => element.initial_channel ?? "",
  multi_channels_select: (element) => element.initial_channels ?? [],
  conversations_select: (element) => element.initial_conversation ?? "",
  multi_conversations_select: (element) => element.initial_conversations ?? [],
  datepicker: (element) => element.initial_date ?? "",
  timepicker: (element) => element.initial_time ?? "",
};

/** An element's value as the control API takes it: text, an option's value or an id; a list where several may be chosen. */
export const initialOf = (element) => (INITIAL[element.type] ?? ((each) => each.initial_value ?? ""))(element);

/** Whether a value holds nothing. */
export const isEmpty = (value) => value === null || value === "" || (Array.isArray(value) && !value.length);

const optionChoice = (option) => ({ value: option.value, label: unescape(option.text.text), text: option.text, about: option.description });

function peopleOf(directory) {
  return [...directory.users.values()].filter((user) => !user.is_bot).map((user) => ({ value: user.id, label: called(user) }));
}

function channelsOf(directory) {
  return [...directory.channels.values()].filter((channel) => !channel.is_im).map((channel) => ({ value: channel.id, label: `#${channel.name}` }));
}

/** What can be chosen in an element: groups of {label, choices: [{value, label, text?, about?}]}; the label is null without groups. */
export function choicesOf(element, directory) {
  if (element.type.endsWith("users_select")) return [{ label: null, choices: peopleOf(directory) }];
  if (element.type.endsWith("channels_select")) return [{ label: null, choices: channelsOf(directory) }];
  if (element.type.endsWith("conversations_select")) return [{ label: null, choices: [...channelsOf(directory), ...peopleOf(directory)] }];
  if (element.option_groups) return element.option_groups.map((group) => ({ label: unescape(group.label.text), choices: group.options.map(optionChoice) }));
  return [{ label: null, choices: (element.options ?? []).map(optionChoice) }];
}
