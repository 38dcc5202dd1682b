// What the page asks the server for: a line of JSON for each step, the last one is the result.

export class Failure extends Error {}
export class Gone extends Error {}

/** The result of a call. `told` hears {done, total, what}. */
export async function call(name, body, { signal, told } = {}) {
  let response;
  try {
    response = await fetch(`api/${name}`, {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
      signal,
    });
  } catch (error) {
    throw signal?.aborted ? error : new Gone(String(error));
  }
  if (!response.ok) {
    const told = await response.json().catch(() => null);
    throw new Failure(told?.error?.message ?? `The server answered ${response.status}.`);
  }
  try {
    for await (const line of lines(response.body)) {
      const answer = JSON.parse(line);
      if (answer.error) throw new Failure(answer.error);
      if ("result" in answer) return answer.result;
      told?.({ done: answer.progress[0], total: answer.progress[1], what: answer.progress[2] });
    }
  } catch (error) {
    if (signal?.aborted || error instanceof Failure) throw error;
    throw new Gone(String(error));
  }
  throw new Gone("the answer broke off");
}

async function* lines(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = [];
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = value.split("\n");
    rest.push(parts[0]);
    for (const part of parts.slice(1)) {
      yield rest.join("");
      rest = [part];
    }
  }
}

/** Numbers that came in base64, with their shape. */
export function unpack({ shape, type, data }) {
  const bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0));
  const values = type === "float32" ? new Float32Array(bytes.buffer) : new Int32Array(bytes.buffer);
  return Object.assign(values, { shape });
}

/** Waits until the server answers again. */
export async function returned() {
  for (;;) {
    await new Promise((done) => setTimeout(done, 1000));
    try {
      if ((await fetch("../health", { cache: "no-store" })).ok) return;
    } catch {
      // not yet
    }
  }
}
