// The backend answers the requests of this page. `http.js` is a backend that asks a server; web/demo/local.js asks a model in this browser. The entry
// (`server.js`, or the demo's `start.js`) passes one of them to `start` in main.js.
//
// A backend is an object:
//   hasKey     true if the backend may need an API key: without it, errors have the status 401. `setKey(key)` sets the key
//   resumes    true if an answer continues after this page is closed: events have ids, and `rest(id, after, signal)` and `cancel(id)` work
//   chooses    true if a request can name one of several models; otherwise the only model answers every request
//   place      a sentence that says where conversations are kept
//   models()   resolves to `[{id, status, architecture, parameters, dtype, device}]`; `status` is `ready` or `loading`
//   defaults(model)        resolves to the settings of a request that sets none: `{temperature, top_k, …}`. `thinking` lists the choices that
//              the model offers, and is missing if the backend does not know them
//   count(text, model)     resolves to the number of tokens of a text, or to `null` if the backend cannot count them
//   chat(request, signal)  yields `{id, chunk}` of each event of an answer. `request` is the body of POST /v1/chat/completions, `chunk` an event of its
//                          stream. `id` is null if the backend does not resume. When `signal` aborts, the answer ends
//   rest(id, after, signal)  yields the events of the answer `id` after the event `after`
//   cancel(id)             stops an answer that would continue without a connection
//   states     `list(model)` resolves to `[{name, tokens, bytes, created, model}]`
//              `change({action: 'fork', name, from} | {action: 'save', name, messages, from?})`
//              `delete(name, model)`, `content(name, model)` resolves to a Blob, `upload(name, model, file)`
// All functions throw `BackendError`. After `signal` has aborted, they may throw an `AbortError` instead.

/**
 * An error of a backend. `status` and `code` have the values of the server's API: a missing state has the status 404 and the code `state_not_found`.
 * `isLost` is true if the backend cannot be reached, or if a stream was cut.
 */
export class BackendError extends Error {
  constructor(message, { status = 0, code = null, type = null, param = null, requestId = null, retryAfter = null, isLost = false } = {}) {
    super(message);
    Object.assign(this, { status, code, type, param, requestId, retryAfter, isLost });
  }
}

/** The backend of this page, or `null` before `use`. */
export let backend = null;

export const use = (chosen) => (backend = chosen);
