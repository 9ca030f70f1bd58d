// The page's only door to the world: read the state, follow its changes, send what a person does.

const RETRY_MS = 1500;

/** Send what a person did. Never throws: a world that cannot be reached answers like a bot that does not. */
export async function post(name, body) {
  try {
    const response = await fetch(`/_sandbox/${name}`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
    });
    const answer = await response.json().catch(() => ({}));
    if (response.ok) return { ack: null, ...answer };
    return { ack: null, error: answer.error || `http_${response.status}` };
  } catch {
    return { ack: null, error: "sandbox_unreachable" };
  }
}

/** Whether the bot acknowledged in time. An empty acknowledgement is one; nothing at all is not. */
export const acknowledged = (answer) => !answer.error && (answer.ack !== null || typeof answer.ack_ms === "number");

/**
 * Call `onState` with the state now and after every change, and `onLink` with true or false as the event stream
 * comes and goes. Changes that arrive during a fetch are served by one more fetch. Returns a function that stops.
 */
export function follow(onState, onLink) {
  let stream = null;
  let retry = null;
  let busy = false;
  let again = false;
  let stopped = false;

  async function refresh() {
    if (busy) {
      again = true;
      return;
    }
    busy = true;
    do {
      again = false;
      try {
        const response = await fetch("/_sandbox/state", { cache: "no-store" });
        if (response.ok && !stopped) onState(await response.json());
      } catch {
        // The stream's own error handler reconnects and refreshes.
      }
    } while (again && !stopped);
    busy = false;
  }

  function connect() {
    stream = new EventSource("/_sandbox/events");
    stream.onopen = () => {
      onLink(true);
      refresh();
    };
    stream.addEventListener("change", refresh);
    stream.onerror = () => {
      onLink(false);
      // The browser reconnects by itself after a cut, but gives up for good on an error status.
      if (stream.readyState === EventSource.CLOSED && !stopped) retry = setTimeout(connect, RETRY_MS);
    };
  }

  connect();
  refresh();
  return () => {
    stopped = true;
    clearTimeout(retry);
    stream.close();
  };
}

/** Read a part of the control API; null when it cannot be reached. */
export async function read(name) {
  try {
    const response = await fetch(`/_sandbox/${name}`, { cache: "no-store" });
    return response.ok ? await response.json() : null;
  } catch {
    return null;
  }
}

/** Clear one fault, or all of them with null. What came of it is seen on the backstage stream. */
export async function disarm(id) {
  await fetch(`/_sandbox/faults${id === null ? "" : `/${id}`}`, { method: "DELETE" }).catch(() => null);
}

/**
 * Follow the backstage: `onNews(name, value)` for each picture of the `ledger`, the `weather` and the `database`, `onCut()` when the stream is gone
 * (it comes back by itself). Returns a function that ends it; while nobody follows, the world watches nothing.
 */
export function watch(onNews, onCut) {
  let stream = null;
  let retry = null;
  function connect() {
    stream = new EventSource("/_sandbox/backstage");
    for (const name of ["ledger", "weather", "database"]) {
      stream.addEventListener(name, (event) => onNews(name, { ...JSON.parse(event.data), heard: Date.now() }));
    }
    stream.onerror = () => {
      onCut();
      if (stream.readyState === EventSource.CLOSED) retry = setTimeout(connect, RETRY_MS);
    };
  }
  connect();
  return () => {
    clearTimeout(retry);
    stream.close();
  };
}
