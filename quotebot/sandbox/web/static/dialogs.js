// What opens above the page: a question to confirm, a look into a file, and the frame every dialog shares.

import { html, useLayoutEffect, useRef } from "./vendor/standalone.module.js";
import { Icon } from "./icons.js";
import { Text } from "./mrkdwn.js";

const FIELDS = "[data-autofocus], .dialog-body :is(input, select, textarea, button):not(:disabled), .dialog-foot .primary";

// Where the focus was outside of any dialog: a button that is busy, or gone, when its form closes cannot take it back by itself.
let before = null;
document.addEventListener("focusin", ({ target }) => {
  if (!target.closest("dialog")) before = target;
});

function giveBack() {
  const place = before?.isConnected && !before.disabled ? before : document.querySelector("[data-testid=composer]");
  if (!document.querySelector("dialog[open]")) place?.focus({ preventScroll: true });
}

/** A native modal dialog: the browser keeps the focus inside, Escape calls `onClose`. It begins in the first field. */
export function Dialog({ label, testid, wide, onClose, children }) {
  const self = useRef(null);
  useLayoutEffect(() => {
    const dialog = self.current;
    dialog.showModal();
    (dialog.querySelector("[data-autofocus]") ?? dialog.querySelector(FIELDS))?.focus();
    return () => {
      dialog.close();
      requestAnimationFrame(giveBack);
    };
  }, []);
  const onCancel = (event) => {
    event.preventDefault();
    onClose();
  };
  return html`<dialog ref=${self} class=${wide ? "dialog wide" : "dialog"} aria-label=${label} data-testid=${testid} onCancel=${onCancel}>
    ${children}
  </dialog>`;
}

/** A dialog's title with its closing cross. */
export function Head({ title, onClose }) {
  return html`<header class="dialog-head">
    <h2>${title}</h2>
    <button type="button" class="icon-button" aria-label="Close" onClick=${onClose}><${Icon} name="close" /></button>
  </header>`;
}

/** Ask before a click counts. `confirm` is a Block Kit confirmation object. */
export function ConfirmDialog({ confirm, onYes, onNo }) {
  const danger = confirm.style === "danger";
  return html`<${Dialog} label=${confirm.title?.text ?? "Are you sure?"} testid="confirm-dialog" onClose=${onNo}>
    <${Head} title=${html`<${Text} text=${confirm.title ?? { type: "plain_text", text: "Are you sure?" }} />`} onClose=${onNo} />
    <div class="dialog-body"><${Text} text=${confirm.text} /></div>
    <footer class="dialog-foot">
      <button type="button" class="button" data-testid="confirm-no" onClick=${onNo}>
        <${Text} text=${confirm.deny ?? { type: "plain_text", text: "Cancel" }} />
      </button>
      <button type="button" class=${`button ${danger ? "danger" : "primary"}`} data-testid="confirm-yes" data-autofocus onClick=${onYes}>
        <${Text} text=${confirm.confirm ?? { type: "plain_text", text: "Yes" }} />
      </button>
    </footer>
  </${Dialog}>`;
}

/** A PDF in the browser's own viewer, above the conversation; the fragment asks it not to spend half the width on thumbnails. */
export function FilePreview({ title, address, onClose }) {
  return html`<${Dialog} label=${title} testid="file-preview" wide onClose=${onClose}>
    <${Head} title=${title} onClose=${onClose} />
    <iframe class="preview" src=${`${address}#navpanes=0`} title=${title}></iframe>
  </${Dialog}>`;
}
